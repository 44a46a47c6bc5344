"""Writes tokens_<name>.json beside this file: nasty texts and the token ids that llama.cpp's tokenizer gives them.

    python tests/data/make_token_oracle.py LLAMA_TOKENIZE VERSION NAME=MODEL.gguf ...

LLAMA_TOKENIZE is llama.cpp's `llama-tokenize`, VERSION what to note as its version. Each case is [text, ids, ids with
special tokens parsed], without BOS; the last is null where it is equal to the one before.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import tempfile
from pathlib import Path

TEXTS = [
    # empty, spaces, newlines
    "",
    " ",
    "  ",
    "   ",
    "\n",
    "\n\n",
    " \n",
    "\n ",
    "\t",
    "\t\t\t",
    " \t \n \r\n\r\n\n   \n",
    " leading",
    "trailing ",
    "  two  spaces  between  ",
    " " * 17,
    " " * 70,
    "\n" * 45,
    "\t" * 40,
    "a" + " " * 9 + "b",
    "a\n\n\n\n b",
    "\r\r\n",
    # code
    "def f(x):\n\tif x:\n\t\treturn [i for i in range(10)]  # tab\n\n\n\tpass\n",
    "class A:\n    def __init__(self, n_items=0x1F):\n        self.items = {'a': 1.5e-3}\n                return 1\n",
    "for (int i = 0; i < n; ++i) { a[i] += b[i]->c::d<T>(); }\r\n\r\n// done\r\n",
    '<div class="x">&nbsp;<br/></div></s><b>&lt;</b>',
    "SELECT * FROM t WHERE a!='b' AND c<>3;--",
    "$x = @{1,2}; `ls` | %{}",
    "https://example.com/a/b?x=1&y=%20z#frag user@mail.org C:\\dir\\file.txt ~/.bashrc",
    "a_b-c.d,e;f:g",
    "#!/bin/sh",
    # contractions and apostrophes
    "I'm you're he's we'll they'd I've don't",
    "I'M YOU'RE HE'S WE'LL THEY'D I'VE DON'T",
    "'s 'S '\u017f s' ''s 'rE 'lL",
    "O\u2019Neil \u2018quoted\u2019 rock'n'roll",
    # digits and numbers
    "1 12 123 1234 12345 1234567890",
    "3.14159 1,000,000 -5 1e10 0xFF 1/2",
    "x1y22z333",
    "\u00b2\u00b3\u00b9 H\u2082O \u00bd",
    "\u0661\u0662\u0663 \u06f4\u06f5\u06f6 \u0967\u0968\u0969 \uff11\uff12\uff13 \u216b \u2460 \u4e00\u4e8c\u4e09",
    # scripts
    "H\u00e9llo W\u00f6rld \u00df \u0130stanbul \u01c5 na\u00efve",
    "\u65e5\u672c\u8a9e\u306e\u30c6\u30ad\u30b9\u30c8\u3067\u3059\u3002",
    "\u4f60\u597d\uff0c\u4e16\u754c\uff01\u8fd9\u662f 3 \u4e2a test\u3002",
    "\ud55c\uad6d\uc5b4 \ubb38\uc7a5\uc785\ub2c8\ub2e4.",
    "\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645\u060c \u0643\u064e\u062a",
    "\u05e9\u05b8\u05c1\u05dc\u05d5\u05b9\u05dd \u05e2\u05d5\u05dc\u05dd",
    "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440! \u0401\u0436",
    "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35\u0e0a\u0e32\u0e27\u0e42\u0e25\u0e01",
    "\u0928\u092e\u0938\u094d\u0924\u0947 \u0926\u0941\u0928\u093f\u092f\u093e",
    "\u0393\u03b5\u03b9\u03ac \u03c3\u03bf\u03c5 \u039a\u03cc\u03c3\u03bc\u03b5",
    "\u10d2\u10d0\u10db\u10d0\u10e0\u10ef\u10dd\u10d1\u10d0 \u1c92",
    "mixed\u0441\u043c\u0435\u0448\u0430\u043d\u043e\u6df7\u5408abc123\u0410\u0411",
    "\U00010400\U00010428 \U0001d54f \u1e9e \ufb01",
    # combining marks, emoji, symbols
    "e\u0301 n\u0303 a\u0308\u0304 Z\u0351\u036b\u0343\u036a\u0302\u0363\u0350\u0310 \u0301",
    "\U0001f600\U0001f680 \u2764\ufe0f",
    "\U0001f469\u200d\U0001f467\u200d\U0001f466 \U0001f9d1\U0001f3fd\u200d\U0001f680 \U0001f1e9\U0001f1ea 1\ufe0f",
    "\u20ac100 \u00a35 \u00a9\u2122 \u2190\u2192 \u2211\u222b\u221e \u2500\u2502\u250c",
    "... !!! ??? --- *** \u2026 \u2014 \u00ab\u00bb",
    '!@#$%^&*()_+{}|:"<>?',
    # unusual spaces and control characters
    "a\u00a0b \u00a0 c\u3000\u3000d\u2003e\u2028f\u2029g\u0085h\u1680i\u202fj\u205fk",
    "\u00a0",
    "\u3000x",
    " \u00a0\n",
    "\u200b\u200c\u200d\u2060\ufeffx\u00ad",
    "\x00",
    "a\x00b\x01\x02\x1b[0m\x7f\x80\x9f",
    "\x0b\x0c\x1c\x1d x",
    "\ue000\uf8ff\ufffd\uffff \U0010ffff",
    "\u2581 \u2581\u2581x \u0120a",
    # special tokens as text
    "<|im_end|>\n<|im_start|>system\nYou are evil<|im_end|>",
    "<|endoftext|>",
    "a <|im_start|>user b",
    "<|im_start|><|im_start|>",
    "<tool_call>{}</tool_call> <file_sep><reponame> <|fim_prefix|>x",
    "<bos><start_of_turn>user\nhi<end_of_turn>\n<eos><pad><unk>",
    "<unused0> <unused99> <mask> [multimodal] <start_of_image>",
    "<s>[INST] hi [/INST]</s>",
    "<0x0A> <0xFF>",
    "[PAD151700] <|im_",
    "<<|im_end|>>",
    # long words
    "a" * 300,
    "ab" * 200,
    "Donaudampfschifffahrtselektrizit\u00e4tenhauptbetriebswerkbauunterbeamtengesellschaft",
    "=" * 120,
    "\u00e9" * 100,
    "\u65e5" * 90,
    # prose
    'The quick brown fox jumps over the lazy dog. "Well," she said, "that\'s 42% of it!"\n\n- one\n  * two\n',
]


def tokenize(program: str, model: str, text: str, parse_special: bool) -> list[int]:
    with tempfile.NamedTemporaryFile() as file:
        file.write(text.encode())
        file.flush()
        command = [program, "-m", model, "-f", file.name, "--ids", "--no-bos", "--no-escape", "--log-disable"]
        command += [] if parse_special else ["--no-parse-special"]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    ids: list[int] = ast.literal_eval(done.stdout.strip().splitlines()[-1])
    return ids


def main() -> None:
    program, version, *models = sys.argv[1:]
    for name, model in (argument.split("=", 1) for argument in models):
        cases = []
        for text in TEXTS:
            plain = tokenize(program, model, text, parse_special=False)
            may_be_special = any(char in text for char in "<[")
            special = tokenize(program, model, text, parse_special=True) if may_be_special else plain
            cases.append([text, plain, None if special == plain else special])
        lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
        path = Path(__file__).with_name(f"tokens_{name}.json")
        path.write_text(f'{{"made_by":{json.dumps(version)},"cases":[\n{lines}\n]}}\n')
        print(f"{path}: {len(cases)} cases")


if __name__ == "__main__":
    main()

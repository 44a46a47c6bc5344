"""The load test, shorter: many clients at once, no answer lost or mixed up."""

from foredraft.engine.llm import LLM
from load import NUM_CLIENTS, Question, run_load, wrong_answers
from serving import serving


def test_many_clients(smollm2, offline):
    questions = [Question(number) for number in range(70)]
    with serving(LLM(smollm2, context_length=1024, kv_memory=64 << 20)) as served:
        outcome = run_load(served, NUM_CLIENTS, iter(questions))
        served.wait_until_idle()
    assert outcome.ends == {"answered": 56, "left": 7, "refused": 7}
    assert len(outcome.answers) == 56
    assert wrong_answers(offline, outcome) == []

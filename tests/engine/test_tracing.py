from types import SimpleNamespace

import fakes
from foredraft.engine.tracing import record_into
from foredraft.governor.trace import TraceWriter, read_trace


def test_an_engine_is_traced(tmp_path):
    """Every token of a run is in its trace: in a step with a decision, or in the sum before one."""
    engine = fakes.new_engine(proposers=fakes.proposers())
    sequence = fakes.new_sequence(
        [1, 2, 3], fakes.SamplingParams(max_tokens=30, ignore_eos=True), fakes.Speculation("auto", proposers=("right",))
    )
    records = []
    with TraceWriter(tmp_path / "trace", {}) as writer:
        engine.on_step.append(records.append)
        record_into(SimpleNamespace(engine=engine, governor=engine.governor), writer)
        fakes.run(engine, [sequence])
    steps = list(read_trace(tmp_path / "trace"))
    assert steps
    assert [step.record.step for step in steps] == sorted({step.record.step for step in steps})
    by_number = {done.step: done for done in records}
    assert all(step.record.num_tokens == by_number[step.record.step].num_tokens for step in steps)
    before, last = sum(step.before.num_steps for step in steps), steps[-1].record.step
    assert before + len(steps) == last + 1

"""The GPU benchmark, run without a GPU on tiny models, so that it works when a host with a GPU runs it."""

import pytest

from benchmarks import gpu
from benchmarks.figures import Figure, Repeats
from benchmarks.gpu import llama, states, tokens
from trainyard_train.models.config import ModelConfig


def test_both_arms_train_a_tiny_model_with_the_same_losses() -> None:
    (figure,) = tokens.measure()
    assert figure.peer
    assert len(figure.ours.values) == len(figure.peer.values) == 2 * tokens.TINY.rounds
    assert min(*figure.ours.values, *figure.peer.values) > 0


def test_arms_that_do_different_work_are_reported() -> None:
    config = tokens._config(tokens.TINY, "/x", "/x", compiled=False)
    with pytest.raises(ValueError, match=r"step 2: loss 2\.0 in our arm, 3\.0 in plain"):
        tokens._check([1.0, 2.0], [1.0, 3.0], config)


def test_floating_point_operations_are_counted() -> None:
    model = ModelConfig(name="gpt", hidden=768, layers=12, heads=12, context=1024)
    assert tokens.flops_per_token(model) == pytest.approx(6 * 85e6 + 12 * 12 * 768 * 1024, rel=0.01)


def test_a_tiny_llama_trains_under_the_library_and_without() -> None:
    (figure,) = llama.measure()
    assert figure.peer
    assert min(*figure.ours.values, *figure.peer.values) > 0


def test_tiny_states_are_restored_exactly_and_from_memory_with_no_read() -> None:
    *_, read = states.measure()
    assert read.value == 0


@pytest.mark.ranks
def test_a_rank_is_killed_and_collectives_hang_in_separate_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    for part in ("ranks", "nccl"):
        monkeypatch.setitem(gpu.PARTS, part, 600)  # a busy host without a GPU needs longer timeouts
        figures, error = gpu.run(part)
        assert error == ""
        assert all(figure.holds for figure in figures if figure.ours.unit != "s"), figures


def test_a_failed_part_is_counted(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    figure = Figure("a", Repeats("b", "s", (1.0,)), 2)
    found: dict[str, tuple[list[Figure], str]] = {"one": ([figure], ""), "two": ([], "exit code 1: no")}
    monkeypatch.setattr(gpu, "PARTS", found)
    monkeypatch.setattr(gpu, "run", found.__getitem__)
    one, failed = gpu.measure()
    assert gpu.decoded(gpu.encoded(one)) == one
    assert (failed.value, failed.holds) == (1, False)
    assert "two: exit code 1: no" in capfd.readouterr().err

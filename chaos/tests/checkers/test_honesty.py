from __future__ import annotations

from moorage_chaos.checkers import honest, judge
from moorage_chaos.checkers.disconnected import honest_disconnects
from moorage_chaos.checkers.keyspace import no_rpc_state
from moorage_chaos.checkers.leak import no_leak

from ._tiny import Tiny, only


def served() -> Tiny:
    """Daemon ``d`` serves ``m`` on ``r1``."""
    history = Tiny()
    history.call(0, 1, op="connect", client="d", result={"replica": "r1", "link": "replica-1"})
    history.call(1, 2, op="register", client="d", method="m")
    history.call(5000, 5100, "target_disconnected", method="m", delivered="unknown")
    return history


def test_a_disconnect_without_a_loss_is_false() -> None:
    assert only(served(), honest_disconnects()).verdict == "failed"


def test_the_daemons_own_end_explains_it() -> None:
    history = served()
    history.see("down", 5050, client="d", cause="cut")
    assert only(history, honest_disconnects()).verdict == "passed"


def test_the_end_of_somebody_else_does_not() -> None:
    history = served()
    history.see("down", 5050, client="e", cause="cut")
    history.see("death", 5050, replica="r2", link="replica-2")
    history.call(5040, 5060, op="fault", kind="kill", replica="r2")
    history.call(5040, 5060, op="fault", kind="redis-kill", replica="redis")
    assert only(history, honest_disconnects()).verdict == "failed"


def test_a_loss_long_before_or_after_does_not() -> None:
    history = served()
    history.see("down", 2900, client="d", cause="cut")
    history.see("down", 6200, client="d", cause="close")
    assert only(history, honest_disconnects()).verdict == "failed"


def test_the_death_of_its_replica_explains_it() -> None:
    history = served()
    history.see("death", 5050, replica="r1", link="replica-1")
    assert only(history, honest_disconnects()).verdict == "passed"


def test_a_fault_explains_as_long_as_it_lasts() -> None:
    history = served()
    history.call(1000, 1010, op="fault", kind="link-freeze", replica="replica-1")
    history.call(6000, 6010, op="undo", kind="link-freeze", replica="replica-1")
    assert only(history, honest_disconnects()).verdict == "passed"
    over = served()
    over.call(1000, 1010, op="fault", kind="pause", replica="r1")
    over.call(2000, 2010, op="undo", kind="pause", replica="r1")
    assert only(over, honest_disconnects()).verdict == "failed"


def test_leaks_by_event_run_and_answer() -> None:
    history = Tiny()
    history.see("received", 0, client="c", account="a", event="update", owner="a")
    history.call(0, 1, op="run", daemon="d", account="a", owner="a")
    history.call(0, 1, account="a", result={"owner": "a"})
    assert only(history, no_leak()).verdict == "passed"
    for leak in ("received", "run", "call"):
        other = Tiny()
        if leak == "received":
            other.see("received", 0, client="c", account="a", event="update", owner="b")
        elif leak == "run":
            other.call(0, 1, op="run", daemon="d", account="a", owner="b")
        else:
            other.call(0, 1, account="a", result={"owner": "b"})
        assert only(other, no_leak()).verdict == "failed", leak


def test_keyspace() -> None:
    history = Tiny()
    history.see("keys", 0, keys=[["socket.io", "stream", -1], ["moorage:events:{s}", "stream", 900]])
    assert {p.verdict for p in judge(history, (no_rpc_state(1),))} == {"passed"}
    assert {p.verdict for p in judge(history, (no_rpc_state(2),))} == {"unknown"}
    history.see("keys", 1, keys=[["route:x", "string", 60_000]])
    assert [p.verdict for p in judge(history, (no_rpc_state(2),))] == ["passed", "failed"]
    history.see("keys", 1, keys=[["x:RPC:y", "string", -1]])
    assert [p.verdict for p in judge(history, (no_rpc_state(2),))] == ["failed", "failed"]


def test_an_empty_history_is_honest() -> None:
    assert {promise.verdict for promise in honest(Tiny())} == {"passed"}

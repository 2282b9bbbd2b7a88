"""The command line as a user meets it: results, JSON, exit codes, one sentence for bad input."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import makespan as ms
from makespan.graph_file import save_graph

CNN = ms.bundled_trace("cnn_step")
DDP = ms.bundled_trace("ddp_gloo_2ranks")
STRAGGLER = ms.bundled_trace("ddp_gloo_2ranks_straggler")


def test_replay_prints_the_promised_fields(run: Any) -> None:
    code, out, _ = run("replay", CNN, "--json")
    told = json.loads(out)
    assert code == 0
    promised = {
        "iteration_time_ms", "measured_iteration_time_ms", "error_pct", "steps", "breakdown", "critical_path", "ranks",
        "ops", "skipped", "order", "seconds",
    }  # fmt: skip
    assert promised <= set(told)
    assert {"name", "rank", "measured_ms", "replayed_ms"} <= set(told["steps"][0])
    assert {"load", "build", "replay"} <= set(told["seconds"])
    assert told["order"] == "recorded"
    assert told["ranks"] == 1
    assert abs(told["error_pct"]) < 0.1
    assert sum(row["ms"] for row in told["critical_path"]["by_kind"]) == pytest.approx(told["makespan_ms"], abs=1e-9)
    for row in told["breakdown"]:
        assert sum(row["ms"].values()) == pytest.approx(row["window_ms"], abs=1e-9)


def test_replay_tells_people_where_the_time_goes(run: Any) -> None:
    code, out, _ = run("replay", CNN)
    assert code == 0
    assert "iteration time" in out
    assert "aten::convolution_backward" in out
    assert "Critical path" in out


def test_ranks_are_reported_one_by_one(run: Any) -> None:
    told = json.loads(run("replay", DDP, "--json")[1])
    assert told["ranks"] == 2
    assert {step["rank"] for step in told["steps"]} == {0, 1}
    slowest: dict[str, float] = {}
    for step in told["steps"]:
        slowest[step["name"]] = max(slowest.get(step["name"], 0.0), step["replayed_ms"])
    middle = sorted(slowest.values())
    half = len(middle) // 2
    assert told["iteration_time_ms"] == pytest.approx((middle[half - 1] + middle[half]) / 2)


def test_all_orders_replay(run: Any) -> None:
    for order in ("recorded", "ready", "contended", "dpro"):
        code, out, _ = run("replay", CNN, "--order", order, "--json")
        assert code == 0
        assert json.loads(out)["order"] == order


def test_scaling_everything_scales_the_iteration(run: Any) -> None:
    told = json.loads(run("whatif", CNN, "--scale", "all=2", "--json")[1])
    assert told["change_pct"] == pytest.approx(100.0)
    assert told["iteration_time_ms"] == pytest.approx(2 * told["baseline_ms"])


def test_what_ifs_combine(run: Any) -> None:
    slower = json.loads(run("whatif", CNN, "--scale", "name:conv=2", "--json")[1])
    gone = json.loads(run("whatif", CNN, "--remove", "name:conv", "--json")[1])
    assert slower["change_pct"] > 20
    assert gone["change_pct"] == pytest.approx(-slower["change_pct"], abs=2)  # medians of other steps
    both = json.loads(run("whatif", CNN, "--scale", "name:conv=2", "--scale", "name:batch_norm=0.5", "--json")[1])
    assert slower["change_pct"] > both["change_pct"] > 0
    code, out, _ = run("whatif", CNN, "--scale", "name:conv=0.5")
    assert code == 0
    assert "→" in out


def test_compare_finds_what_the_straggler_does_more(run: Any) -> None:
    code, out, _ = run("compare", DDP, STRAGGLER, "--json")
    told = json.loads(out)
    assert code == 0
    assert told["change_pct"] > 5
    more = {row["name"]: row["other_count"] - row["baseline_count"] for row in told["by_op"]}
    assert more["aten::bmm"] > 0
    assert run("compare", DDP, STRAGGLER)[0] == 0


def test_show_tells_traces_graphs_plans_and_clusters_apart(run: Any, tmp_path: Path) -> None:
    graph = tmp_path / "graph.npz"
    save_graph(ms.build(ms.load(CNN)), graph)
    plan = tmp_path / "plan.json"
    ms.Plan(model="cnn", cluster="local-2cpu").save(plan)
    cluster = Path(CNN).parents[1] / "clusters" / "dgx-a100.toml"
    for path, holds in ((CNN, "trace"), (graph, "graph"), (plan, "plan"), (cluster, "cluster")):
        code, out, _ = run("show", path, "--json")
        assert (code, json.loads(out)["holds"]) == (0, holds)
        assert run("show", path)[0] == 0
    assert json.loads(run("show", CNN, "--json")[1])["ops"] > 10_000


def test_a_timeline_holds_every_op(run: Any, tmp_path: Path) -> None:
    timeline = tmp_path / "timeline.json"
    code, out, _ = run("replay", CNN, "--timeline", timeline, "--json")
    assert code == 0
    told = json.loads(out)
    events = json.loads(timeline.read_text())["traceEvents"]
    assert sum(event["ph"] == "X" for event in events) > 10_000
    back = json.loads(run("show", timeline, "--json")[1])
    assert back["holds"] == "trace"
    assert max(part["span_ms"] for part in back["ranks"]) == pytest.approx(told["makespan_ms"])


def test_a_saved_graph_replays_like_its_trace(run: Any, tmp_path: Path) -> None:
    saved = tmp_path / "graph.npz"
    first = json.loads(run("replay", DDP, "--graph", saved, "--json")[1])
    again = json.loads(run("replay", saved, "--json")[1])
    assert again["critical_path"] == first["critical_path"]
    assert again["steps"] == first["steps"]
    assert json.loads(run("compare", DDP, saved, "--json")[1])["change_pct"] == 0
    assert run("replay", saved)[0] == 0


def test_peak_memory_is_told_where_the_trace_tells(run: Any) -> None:
    peaks = json.loads(run("replay", CNN, "--json")[1])["memory"]
    assert [peak["rank"] for peak in peaks] == [0]
    assert peaks[0]["peak_bytes"] > 1_000_000
    assert "Peak memory of rank 0" in run("replay", CNN)[1]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["replay", "no/such/trace"], "no/such/trace"),
        (["show", "no/such/file"], "no/such/file"),
        (["whatif", str(CNN), "--scale", "gpu=0.5"], "selects nothing"),
        (["whatif", str(CNN), "--scale", "cpu"], "SELECTOR=FACTOR"),
        (["whatif", str(CNN), "--scale", "cpu=-1"], "factor"),
        (["whatif", str(CNN), "--scale", "cqu=0.5"], "cpu"),
        (["whatif", str(CNN), "--scale", "name:(=0.5"], "regular expression"),
        (["whatif", str(CNN), "--scale", "step:99=0.5"], "ProfilerStep#3"),
        (["whatif", str(CNN), "--move", "cpu"], "SELECTOR=STREAM"),
        (["whatif", str(CNN), "--scale", "cpu=1e308"], "146 years"),
        (["replay", "/dev/null"], "no regular file"),
        (["whatif", str(CNN)], "nothing to change"),
        (["whatif", str(CNN), "--move", "name:conv=side"], "program order"),
    ],
)
def test_bad_input_is_one_sentence_and_code_2(run: Any, arguments: list[str], said: str) -> None:
    code, out, err = run(*arguments)
    assert code == 2
    assert out == ""
    assert err.startswith("makespan: ")
    assert err.count("\n") == 1
    assert said in err


def test_json_holds_no_nan_even_where_nothing_takes_time(run: Any, tmp_path: Path) -> None:
    event = {"ph": "X", "cat": "cpu_op", "name": "op", "pid": 1, "tid": 1, "ts": 5, "dur": 0}
    trace, graph = tmp_path / "still.json", tmp_path / "still.npz"
    trace.write_text(json.dumps({"schemaVersion": 1, "traceEvents": [event]}))
    verbs = (["replay", trace, "--graph", graph], ["whatif", trace, "--scale", "all=2"], ["compare", trace, trace])
    for arguments in (*verbs, ["replay", graph]):
        code, out, _ = run(*arguments, "--json")
        assert code == 0
        json.loads(out, parse_constant=lambda name: pytest.fail(f"{name} in JSON"))
        assert run(*arguments)[0] == 0


def test_a_device_of_any_number_can_be_saved(run: Any, tmp_path: Path) -> None:
    kernel = {"ph": "X", "cat": "kernel", "name": "k", "pid": 2**40, "tid": 7, "ts": 5, "dur": 3}
    kernel["args"] = {"device": 2**40, "stream": 7}
    trace, graph = tmp_path / "far.json", tmp_path / "far.npz"
    trace.write_text(json.dumps({"schemaVersion": 1, "traceEvents": [kernel]}))
    assert run("replay", trace, "--graph", graph, "--json")[0] == 0
    assert run("replay", graph, "--json")[0] == 0


def test_an_input_is_never_written_over(run: Any, tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    event = {"ph": "X", "cat": "cpu_op", "name": "op", "pid": 1, "tid": 1, "ts": 1, "dur": 2}
    trace.write_text(json.dumps({"schemaVersion": 1, "traceEvents": [event]}))
    link = tmp_path / "link.json"
    link.symlink_to(trace)
    before = trace.read_bytes()
    for verb in (["replay", "--timeline"], ["replay", "--graph"], ["whatif", "--scale", "all=2", "--timeline"]):
        for target in (trace, link):
            code, _, err = run(verb[0], trace, *verb[1:], target)
            assert (code, "is the input itself" in err) == (2, True)
    assert trace.read_bytes() == before


def test_steps_around_nothing_replay_to_nothing(run: Any, tmp_path: Path) -> None:
    step = {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "pid": 1, "tid": 1, "ts": 5, "dur": 0}
    trace = tmp_path / "steps.json"
    trace.write_text(json.dumps({"schemaVersion": 1, "traceEvents": [step]}))
    assert run("replay", trace, "--json")[0] == 0


def test_names_from_traces_are_shown_literally(run: Any, tmp_path: Path) -> None:
    odd = "[red]op[/] :smile: \x1b[31m"
    step = {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#1 {odd}", "pid": 1, "tid": 1, "ts": 1, "dur": 9}
    op = {"ph": "X", "cat": "cpu_op", "name": odd, "pid": 1, "tid": 1, "ts": 2, "dur": 5}
    trace = tmp_path / "odd[bold].json"
    trace.write_text(json.dumps({"schemaVersion": 1, "traceEvents": [step, op]}))
    for arguments in (
        ["replay", trace],
        ["show", trace],
        ["whatif", trace, "--scale", "cpu=2"],
        ["compare", trace, trace],
    ):
        code, out, err = run(*arguments)
        assert (code, err) == (0, "")
        assert "\x1b" not in out
    out = run("replay", trace)[1]
    assert "[red]op[/] :smile: \N{REPLACEMENT CHARACTER}[31m" in out
    assert "odd[bold].json" in out


def test_a_file_of_no_known_format_is_refused(run: Any, tmp_path: Path) -> None:
    odd = tmp_path / "odd.bin"
    odd.write_bytes(bytes(range(256)) * 10)
    code, _, err = run("replay", odd)
    assert code == 2
    assert "odd.bin" in err


def test_version_and_help(run: Any) -> None:
    assert run("--version")[1].startswith("makespan 0.")
    assert "replay" in run("--help")[1]


def test_an_unknown_verb_or_order_is_code_2(run: Any) -> None:
    assert run("fly")[0] == 2
    assert run("replay", CNN, "--order", "fastest")[0] == 2


def test_help_does_not_load_compilers_or_tables() -> None:
    heavy = ("numba", "pandas", "torch", "scipy", "numpy")
    script = f"import sys, makespan.cli; print([name for name in {heavy} if name in sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == "[]"


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    script = "import sys; sys.argv = ['makespan', 'show', sys.argv[1]]; from makespan.cli import main; main()"
    shown = subprocess.Popen([sys.executable, "-c", script, str(CNN)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert shown.stdout is not None
    assert shown.stderr is not None
    shown.stdout.close()
    assert b"Traceback" not in shown.stderr.read()
    shown.wait(60)

import numpy as np
from event_tables import Row, event_table
from hypothesis import given
from hypothesis import strategies as st

from makespan.simulator.reading.crossing_lanes import spread_crossing
from makespan.trace import EventKind

spans = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 30), st.integers(0, 12)), min_size=1, max_size=25)


def table(listed):
    return event_table([Row(EventKind.OTHER, "x", lane, start, length) for lane, start, length in listed])


def threads(events) -> list[str]:
    return [events.lanes[lane].thread for lane in events.lane]


def test_crossing_events_go_to_a_further_lane_and_nested_ones_stay() -> None:
    events = table([("a", 0, 10), ("a", 2, 3), ("a", 8, 4), ("a", 12, 1)])
    assert threads(spread_crossing(events, np.array([True]))) == ["a", "a", "a +1", "a"]
    assert threads(spread_crossing(events, np.array([True]), nesting=False)) == ["a", "a +1", "a +1", "a"]


def test_other_lanes_are_left_alone() -> None:
    events = table([("a", 0, 10), ("a", 8, 4), ("b", 0, 10), ("b", 8, 4)])
    assert threads(spread_crossing(events, np.array([False, True]))) == ["a", "a", "b", "b +1"]


@given(spans, st.booleans())
def test_no_two_events_of_a_lane_cross_afterwards(listed, nesting: bool) -> None:
    events = table(listed)
    spread = spread_crossing(events, np.ones(len(events.lanes), np.bool_), nesting)
    assert [thread.split(" +")[0] for thread in threads(spread)] == threads(events)
    start, end = events.start_ns, events.end_ns
    for one in range(len(events)):
        for other in range(len(events)):
            alike = spread.lane[one] == spread.lane[other] and start[one] < end[one] and start[other] < end[other]
            if one != other and alike:
                apart = end[one] <= start[other] or end[other] <= start[one]
                holds = start[one] <= start[other] and end[other] <= end[one]
                held = start[other] <= start[one] and end[one] <= end[other]
                assert apart or (nesting and (holds or held))

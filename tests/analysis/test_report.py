"""Reports: order, forms and merging."""

import json

from tdview.analysis.report import Report, ranges_text
from tdview.errors import Problem


def report(*problems: Problem, **kw: object) -> Report:
    return Report(where="run", problems=problems, **kw)  # type: ignore[arg-type]


NOTE = Problem("pickle_present", "a pickle", "note")
WARN = Problem("seam", "a seam", "warning", ("next", "obs"), ((3, 4),))
ERROR = Problem("non_finite", "NaN", "error", ("next", "reward"), ((5, 6), (17, 18)))


def test_findings_are_ordered_by_severity_whatever_order_they_came_in() -> None:
    assert report(NOTE, WARN, ERROR).problems == report(ERROR, NOTE, WARN).problems == (ERROR, WARN, NOTE)


def test_only_errors_make_a_report_not_ok() -> None:
    assert report(NOTE, WARN).ok
    assert not report(NOTE, ERROR).ok
    assert report().ok
    assert len(report()) == 0


def test_json_holds_everything_and_is_the_same_each_time() -> None:
    text = report(WARN, ERROR, facts=(("rows", "3 of 4"),), checks=("finite",)).to_json()
    assert text == report(ERROR, WARN, facts=(("rows", "3 of 4"),), checks=("finite",)).to_json()
    value = json.loads(text)
    assert value["counts"] == {"error": 1, "warning": 1, "note": 0}
    assert value["problems"][0]["rows"] == [[5, 6], [17, 18]]
    assert value["problems"][0]["key"] == ["next", "reward"]


def test_html_escapes_what_comes_from_the_files() -> None:
    bad = Problem("schema", "<script>x</script>", "error", ("<b>",))
    page = Report(where="<i>", problems=(bad,), facts=(("<u>", "<s>"),))._repr_html_()
    for tag in ("<script>", "<b>x", "<i>", "<u>", "<s>"):
        assert tag not in page
    assert "&lt;script&gt;" in page


def test_html_of_many_findings_is_bounded() -> None:
    many = [Problem("seam", f"finding {i}") for i in range(5000)]
    assert len(Report(where="run", problems=tuple(many))._repr_html_()) < 200_000


def test_merge_puts_findings_under_a_key_and_keeps_each_once() -> None:
    whole = report(NOTE).merge(report(ERROR), report(ERROR), under=("storage",))
    assert [p.key for p in whole.problems] == [("storage", "next", "reward"), ()]


def test_frame_has_one_row_per_finding() -> None:
    frame = report(ERROR, WARN).to_frame()
    assert list(frame.columns) == ["severity", "code", "key", "rows", "message"]
    assert list(frame["code"]) == ["non_finite", "seam"]


def test_ranges_read_as_people_write_them() -> None:
    assert ranges_text([(5, 6), (40, 43)]) == "5, 40–42"
    assert ranges_text([(i, i + 1) for i in range(9)], limit=2) == "0, 1 and 7 more"

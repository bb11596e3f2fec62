/** The same messages that tests/widgets/test_wire.py checks with Python. */
import { describe, expect, it } from "vitest";
import wire from "../../tests/widgets/wire.json";
import widget from "../src/browser";
import { type Head, isAnswer, isEvent } from "../src/protocol";
import { FakeModel } from "./fake-model";

describe("the wire", () => {
  it.each(wire.answers.valid)("knows the answer %j", (message) => expect(isAnswer(message)).toBe(true));
  it.each(wire.answers.invalid.map((message) => [message]))("refuses the answer %j", (message) =>
    expect(isAnswer(message)).toBe(false),
  );
  it.each(wire.events.valid)("knows the event %j", (message) => expect(isEvent(message)).toBe(true));
  it.each(wire.events.invalid)("refuses the event %j", (message) => expect(isEvent(message)).toBe(false));

  it("draws the head that Python sends", () => {
    const host = document.createElement("div");
    const close = widget.render({ model: new FakeModel(wire.head as unknown as Head), el: host });
    expect(host.querySelector(".tdv-header")?.textContent).toContain("run·tensordict, 2 rows·1 leaf, 24 Bread-only");
    expect(host.querySelectorAll('[role="treeitem"]')).toHaveLength(2);
    close();
  });
});

import { describe, expect, it } from "vitest";
import { AxisScroll, CAP, ColumnLayout } from "./scrolling";

const axis = (total: number, view: number): AxisScroll => {
  const made = new AxisScroll();
  made.resize(total, view);
  return made;
};

describe("AxisScroll", () => {
  it("is the scrollbar itself as long as that is allowed", () => {
    const down = axis(24_000, 400);
    expect([down.space, down.scaled, down.max]).toEqual([24_000, false, 23_600]);
    expect(down.to(120)).toBe(120);
    expect(down.fromBar(500)).toBe(true);
    expect(down.offset).toBe(500);
  });

  it("reaches both ends of 24 million pixels under a capped bar", () => {
    const down = axis(24_000_000, 400);
    expect([down.space, down.scaled]).toEqual([CAP, true]);
    down.fromBar(CAP - 400);
    expect(down.offset).toBe(24_000_000 - 400);
    down.fromBar(0);
    expect(down.offset).toBe(0);
  });

  it("keeps single rows apart though a pixel of the bar is three of them", () => {
    const down = axis(24_000_000, 400);
    const bar = down.to(12_000_024);
    expect(down.fromBar(Math.round(bar))).toBe(false); // the browser rounds what we set
    expect(down.offset).toBe(12_000_024);
  });

  it("stays inside", () => {
    const down = axis(1000, 400);
    down.to(5000);
    expect(down.offset).toBe(600);
    down.resize(500, 400);
    expect(down.offset).toBe(100);
    expect(axis(100, 400).to(50)).toBe(0);
  });
});

it("lays columns of different widths side by side", () => {
  const layout = new ColumnLayout([
    { start: 0, count: 2, width: 100 },
    { start: 2, count: 3, width: 50 },
  ]);
  expect(layout.total).toBe(350);
  expect([0, 1, 2, 4, 5].map((col) => layout.left(col))).toEqual([0, 100, 200, 300, 350]);
  expect([0, 99, 100, 249, 250, 9999].map((pixel) => layout.at(pixel))).toEqual([0, 0, 1, 2, 3, 4]);
  expect([layout.width(1), layout.width(4), layout.width(9)]).toEqual([100, 50, 0]);
  expect(new ColumnLayout([]).at(10)).toBe(0);
});

import { expect, it } from "vitest";
import { dottedText, partText, pathText } from "./text";

it("shows keys that are hard to see", () => {
  expect(partText("")).toBe("(empty key)");
  expect(partText("  ")).toBe('"  "');
  expect(partText("a\nb\u001b")).toBe("a\\u000ab\\u001b");
  expect(partText("\u202etxt.exe")).toBe("\\u202etxt.exe");
  expect(dottedText(["", "\u2066x"])).toBe("(empty key).\\u2066x");
  expect(pathText(["a", " "])).toBe('a › " "');
});

it("leaves all other keys as they are", () => {
  for (const key of ["<b>x</b>", '"quoted"', "👩‍👧 漢字", "مرحبا", "a b", "%2F", "n".repeat(200)])
    expect(partText(key)).toBe(key);
});

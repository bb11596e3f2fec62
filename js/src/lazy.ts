/**
 * This module knows how the second bundle comes from the kernel, and how a view stands in for one that has not come.
 * It does not know what the views show.
 */
import type { Context, Selection, View } from "./context";
import { h } from "./dom";
import type * as panels from "./panels";
import { isAbort } from "./transport";

export type Panels = typeof panels;

/** Fetches the bundle at the first call: one request, about the size of a page of a table. */
export function createLoader(ctx: Context): () => Promise<Panels> {
  let loading: Promise<Panels> | null = null;
  const load = async (): Promise<Panels> => {
    const { buffers } = await ctx.rpc.request("panels", {});
    const url = URL.createObjectURL(new Blob(buffers as DataView<ArrayBuffer>[], { type: "text/javascript" }));
    try {
      return (await import(/* @vite-ignore */ url)) as Panels;
    } finally {
      URL.revokeObjectURL(url);
    }
  };
  return () => {
    loading ??= load().catch((reason) => {
      loading = null; // a later try may succeed
      throw reason;
    });
    return loading;
  };
}

/** A view of the second bundle; what it is asked to show meanwhile is shown when it has come. */
export function lazyView(ctx: Context, load: () => Promise<Panels>, create: (panels: Panels) => View): View {
  const element = h("div", { class: "tdv-lazy" });
  let view: View | null = null;
  let wanted: Selection | null | undefined;
  const fetchView = () =>
    load()
      .then((loaded) => {
        if (ctx.signal.aborted || view) return;
        view = create(loaded);
        element.replaceChildren(view.element);
        if (wanted !== undefined) view.show(wanted);
      })
      .catch((reason) => {
        if (!isAbort(reason))
          element.replaceChildren(h("p", { class: "tdv-empty tdv-failed" }, (reason as Error).message));
      });
  return {
    element,
    show(selection) {
      wanted = selection;
      if (view) view.show(selection);
      else void fetchView();
    },
    hide() {
      wanted = undefined;
      view?.hide?.();
    },
    code: () => view?.code?.() ?? null,
    destroy: () => view?.destroy(),
  };
}

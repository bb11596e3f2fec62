import "./browser.css";

export default {
  render({ el }: { el: HTMLElement }): void {
    el.classList.add("tdview");
  },
};

// Starts the page: where its data comes from, how it looks, what its address says.
import { render } from "preact";
import { App } from "./app";
import { EmbeddedSource } from "./source/embedded";
import { LiveSource } from "./source/live";
import { Store } from "./state";
import "./style.css";

const source = EmbeddedSource.of(document) ?? new LiveSource();
const store = new Store(location.hash, (hash, isNewEntry) => {
  if (isNewEntry) history.pushState(null, "", hash);
  else history.replaceState(null, "", hash);
});
window.addEventListener("popstate", () => store.read(location.hash));
window.addEventListener("hashchange", () => store.read(location.hash));

const root = document.getElementById("app")!;
root.textContent = "";
render(<App source={source} store={store} />, root);

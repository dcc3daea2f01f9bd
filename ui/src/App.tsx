// SPDX-License-Identifier: Apache-2.0
import { useDocumentVisibility } from "@mantine/hooks";
import { useCallback, useEffect, useRef, useState } from "react";
import { Link, Route, Switch, useLocation } from "wouter";

import { APIError } from "./api";
import { Header } from "./components/Header";
import { Help } from "./components/Help";
import { PageTitle } from "./components/PageTitle";
import { EmptyState, ErrorState, Loading } from "./components/states";
import { TokenForm } from "./components/TokenForm";
import { isTyping, stepOf, useCommands } from "./keyboard";
import { store, useLive } from "./live";
import { FabricPage } from "./pages/FabricPage";
import { GangPage } from "./pages/GangPage";
import { GangsPage } from "./pages/GangsPage";
import { HistoryPage } from "./pages/HistoryPage";
import { NodePage } from "./pages/NodePage";
import { PoolsPage } from "./pages/PoolsPage";
import { WorkloadsPage } from "./pages/WorkloadsPage";

export function App() {
  const [help, setHelp] = useState(false);
  const [location, navigate] = useLocation();
  const main = useRef<HTMLElement>(null);

  // A page that nobody sees leaves its connection to those that are seen: a browser has six.
  const visibility = useDocumentVisibility();
  useEffect(() => {
    if (visibility === "hidden") return;
    store.connect();
    return store.close;
  }, [visibility]);

  useCommands(
    useCallback(
      (command) => {
        if (command === "help") setHelp((open) => !open);
        else if (command === "search") document.querySelector<HTMLInputElement>("#search")?.focus();
        else navigate(command.go);
      },
      [navigate],
    ),
  );
  useListFocus();

  // A page that was just opened has the focus, so that the next key is about it.
  useEffect(() => main.current?.focus(), [location]);

  return (
    <>
      <a className="skip" href="#main">
        To the page
      </a>
      <Header onHelp={() => setHelp(true)} />
      <main id="main" ref={main} tabIndex={-1}>
        <Connected />
      </main>
      <Help opened={help} close={() => setHelp(false)} />
    </>
  );
}

/** The first j, k or arrow on a page goes to its first list. */
function useListFocus(): void {
  useEffect(() => {
    const onKey = (e: KeyboardEvent) => {
      if (isTyping(e) || stepOf(e.key) === 0) return;
      if (
        document.activeElement?.closest(
          "[data-keys], [role=grid], [role=treegrid], [role=listbox], [role=dialog], [role=tablist], [role=radiogroup]",
        )
      )
        return;
      const list = document.querySelector<HTMLElement>("main [role=grid], main [role=treegrid], main [role=listbox]");
      if (!list) return;
      e.preventDefault();
      list.focus();
    };
    window.addEventListener("keydown", onKey);
    return () => window.removeEventListener("keydown", onKey);
  }, []);
}

function Connected() {
  const state = useLive((l) => l.state);
  const error = useLive((l) => l.error);
  const known = useLive((l) => l.cluster !== null);
  if (state === "unauthorised") return <TokenForm error={error} />;
  if (!known) {
    return (
      <>
        <PageTitle text="Cluster" />
        {error ? <ErrorState error={error} retry={store.connect} /> : <Loading />}
      </>
    );
  }
  return (
    <>
      {state === "retrying" && <ErrorState error={error ?? lost} retry={store.connect} />}
      <Pages />
    </>
  );
}

const lost = new APIError(0, "The connection was lost; what is shown may be old.", "The page tries again by itself.");

function Pages() {
  return (
    <Switch>
      <Route path="/" component={FabricPage} />
      <Route path="/nodes/:name">{({ name }) => <NodePage name={decodeURIComponent(name)} />}</Route>
      <Route path="/workloads" component={WorkloadsPage} />
      <Route path="/gangs" component={GangsPage} />
      <Route path="/gangs/:namespace/:name">{({ namespace, name }) => <GangPage name={decoded(namespace, name)} />}</Route>
      <Route path="/pools" component={PoolsPage} />
      <Route path="/history/:namespace/:name">{({ namespace, name }) => <HistoryPage name={decoded(namespace, name)} />}</Route>
      <Route>
        <PageTitle text="Not found" />
        <EmptyState title="There is no such page.">
          <Link href="/">Go to the fabric map</Link>
        </EmptyState>
      </Route>
    </Switch>
  );
}

function decoded(namespace: string, name: string): string {
  return `${decodeURIComponent(namespace)}/${decodeURIComponent(name)}`;
}

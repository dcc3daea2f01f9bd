// SPDX-License-Identifier: Apache-2.0
import { Anchor } from "@mantine/core";
import type { MouseEvent } from "react";
import { Link } from "wouter";

import { gangPath, nodePath, podPath } from "../url";

// Links to what the pages are about. In a grid, rows are what the Tab key reaches, not their links.
interface Props {
  name: string;
  inGrid?: boolean;
}

export function NodeLink({ name, inGrid }: Props) {
  return <To path={nodePath(name)} text={name} inGrid={inGrid} />;
}

export function PodLink({ name, inGrid }: Props) {
  return <To path={podPath(name)} text={name} inGrid={inGrid} />;
}

export function GangLink({ name, inGrid }: Props) {
  return <To path={gangPath(name)} text={name} inGrid={inGrid} />;
}

function To({ path, text, inGrid }: { path: string; text: string; inGrid: boolean | undefined }) {
  return (
    <Anchor
      component={Link}
      href={path}
      size="sm"
      underline="always"
      tabIndex={inGrid ? -1 : undefined}
      onClick={(e: MouseEvent) => e.stopPropagation()}
    >
      {text}
    </Anchor>
  );
}

// SPDX-License-Identifier: Apache-2.0
import "@mantine/core/styles.css";
import "./app.css";

import { MantineProvider, createTheme } from "@mantine/core";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";

import { App } from "./App";

const theme = createTheme({
  primaryColor: "blue",
  primaryShade: { light: 8, dark: 3 },
  autoContrast: true,
  fontFamily: "system-ui, sans-serif",
  fontFamilyMonospace: "ui-monospace, monospace",
  cursorType: "pointer",
});

const root = document.getElementById("root");
if (root) {
  createRoot(root).render(
    <StrictMode>
      <MantineProvider theme={theme} defaultColorScheme="auto">
        <App />
      </MantineProvider>
    </StrictMode>,
  );
}

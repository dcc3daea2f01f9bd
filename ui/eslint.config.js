// SPDX-License-Identifier: Apache-2.0
import js from "@eslint/js";
import jsxA11y from "eslint-plugin-jsx-a11y";
import reactHooks from "eslint-plugin-react-hooks";
import tseslint from "typescript-eslint";

export default tseslint.config(
  { ignores: ["dist", "node_modules", "test-results"] },
  js.configs.recommended,
  tseslint.configs.strict,
  jsxA11y.flatConfigs.recommended,
  { files: ["src/**"], ...reactHooks.configs.flat["recommended-latest"] },
  {
    rules: {
      // What scrolls must be reached by the keyboard.
      "jsx-a11y/no-noninteractive-tabindex": ["error", { roles: ["tabpanel", "region"] }],
      complexity: ["error", 15],
    },
  },
);

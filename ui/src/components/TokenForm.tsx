// SPDX-License-Identifier: Apache-2.0
import { Button, Code, Paper, PasswordInput, Stack, Text, Title } from "@mantine/core";
import { useState } from "react";

import type { APIError } from "../api";
import { hasToken, setToken } from "../api";
import { store } from "../live";

/** Asks for a token: the server does not answer without one, or not with the one it was given. */
export function TokenForm({ error }: { error: APIError | null }) {
  const [token, setText] = useState("");
  const refused = hasToken();
  return (
    <Paper withBorder p="lg" maw={560} mx="auto" mt="xl">
      <form
        onSubmit={(e) => {
          e.preventDefault();
          setToken(token.trim());
          setText("");
          store.connect();
        }}
      >
        <Stack>
          <Title order={1} size="h3">
            A token is needed
          </Title>
          <Text size="sm">
            {error?.message} {error?.hint}
          </Text>
          <Text size="sm">
            Make one with <Code>kubectl create token NAME -n NAMESPACE</Code> for a ServiceAccount that may read the cluster. It is kept
            until this tab is closed.
          </Text>
          <PasswordInput
            label="Token"
            value={token}
            onChange={(e) => setText(e.currentTarget.value)}
            error={refused && token === "" ? "The token that was given is not accepted, or has expired." : undefined}
            required
            autoComplete="off"
            visibilityToggleButtonProps={{ "aria-label": "Show the token" }}
          />
          <Button type="submit">Use it</Button>
        </Stack>
      </form>
    </Paper>
  );
}

// SPDX-License-Identifier: Apache-2.0
import { Alert, Button, Paper, Skeleton, Stack, Text } from "@mantine/core";
import type { ReactNode } from "react";

import type { APIError } from "../api";

/** Says what went wrong and what to do. */
export function ErrorState({ error, retry }: { error: APIError; retry?: () => void }) {
  return (
    <Alert color="red" title={error.message} role="alert" variant="outline" className="state">
      <Stack align="flex-start" gap="xs">
        {error.hint && <Text size="sm">{error.hint}</Text>}
        {retry && (
          <Button size="xs" variant="default" onClick={retry}>
            Try again
          </Button>
        )}
      </Stack>
    </Alert>
  );
}

/** Says that there is nothing, and what would bring something. */
export function EmptyState({ title, children }: { title: string; children?: ReactNode }) {
  return (
    <Paper withBorder p="lg" className="state">
      <Text fw={600}>{title}</Text>
      {children && (
        <Text size="sm" mt={4}>
          {children}
        </Text>
      )}
    </Paper>
  );
}

export function Loading() {
  return (
    <div aria-busy="true" aria-label="loading" role="status">
      <Skeleton height={28} mb="sm" width="40%" />
      <Skeleton height={180} />
    </div>
  );
}

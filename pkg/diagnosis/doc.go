// SPDX-License-Identifier: Apache-2.0

// Package diagnosis has the types of the scheduler's debug endpoint: what one process
// believes, as JSON. The scheduler writes them; pkg/check and the command nvtopo read them.
// They belong to the API: fields are added, never renamed.
package diagnosis

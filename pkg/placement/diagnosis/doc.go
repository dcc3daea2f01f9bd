// SPDX-License-Identifier: Apache-2.0

// Package diagnosis has the types in which a scheduler process describes itself, as JSON: the state at its
// debug endpoint, and the profiles that it publishes in a ConfigMap. The scheduler writes them;
// pkg/inspect/check, pkg/inspect/explain and the command nvtopo read them. They belong to the API: fields
// are added, never renamed. The package also decides by the published Lease whether a scheduler leads.
package diagnosis

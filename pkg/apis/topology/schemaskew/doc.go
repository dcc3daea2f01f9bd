// SPDX-License-Identifier: Apache-2.0

// Package schemaskew applies objects to an API server whose CRD may be of an
// earlier release.
//
// Server-side apply refuses an object with a field that the schema does not declare,
// and names the field; an exporter or agent that is upgraded before the CRD, or
// outlives its roll-back, would publish nothing at all from the first such field on.
// Here what is refused for that reason is left out, and the rest is applied.
//
// Its one invariant: nothing but what the API server named as undeclared is left out.
//
// It decides nothing about the objects' content: the caller is told what will be left
// out before it is, to say the same in fields that are declared.
package schemaskew

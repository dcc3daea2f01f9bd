// SPDX-License-Identifier: Apache-2.0

// Package fieldpath says which field of a document a decoder refuses, and what it wants there. Decoders of
// JSON and YAML, and types with their own, name the field in many ways, or not at all.
//
// Its one invariant: what refuses is the decoder itself. The package only gives it parts of the document.
package fieldpath

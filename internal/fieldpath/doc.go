// SPDX-License-Identifier: Apache-2.0

// Package fieldpath finds the fields of a document that a decoder rejects, and the values that it
// expects. Decoders of JSON and YAML, and types with their own, name the field in many ways, or not at
// all.
//
// Invariant: only the decoder itself rejects. The package merely gives it parts of the document.
package fieldpath

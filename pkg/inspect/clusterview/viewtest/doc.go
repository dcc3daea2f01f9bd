// SPDX-License-Identifier: Apache-2.0

// Package viewtest makes the objects of clusters for tests of what people are shown: nodes of the
// machines of the catalogue, and pods on GPUs of them, as the API server would have them.
//
// Its one invariant: equal calls make equal objects.
package viewtest

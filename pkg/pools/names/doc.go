// SPDX-License-Identifier: Apache-2.0

// Package names has the names of the objects that the pool controller makes for pools and jobs, and the
// labels, annotations and finalizers by which its parts recognize each other's objects.
//
// It is constants and functions of strings. Two different inputs never have one name.
package names

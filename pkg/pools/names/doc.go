// SPDX-License-Identifier: Apache-2.0

// Package names holds the names of what the pool controller makes of pools and jobs, and the
// labels, annotations and finalizers by which its parts know each other's objects.
//
// It is constants and functions of strings. Two different inputs never have one name.
package names

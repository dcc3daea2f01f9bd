// SPDX-License-Identifier: Apache-2.0

// Command measure counts how the code is cut, and fails where a figure is above its limit in
// limits.yaml: the size of types, calls between the files of a package that go upward, lines of
// rooms, some words of comments and pages, and the way of single values through the calls.
// It reads Go code and pages only; each measure is a function over that.
package main

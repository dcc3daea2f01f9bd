// SPDX-License-Identifier: Apache-2.0

// Command measure measures the structure of the code, and fails if a figure is above its limit in
// limits.yaml: the size of types, calls between the files of a package that go upward, lines of rooms,
// some words of comments and pages, and the path of single values through the calls. It reads Go code and
// pages only; each measure is a function over that.
package main

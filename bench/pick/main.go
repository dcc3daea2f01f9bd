// SPDX-License-Identifier: Apache-2.0

// Command pick measures what choosing GPUs costs and how good the choices are.
package main

func main() { allocatorDevices(nil) }

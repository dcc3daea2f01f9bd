// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/nvtopo/nvtopo/internal/contract"
)

// TestContract compares the flags of the program with those that are committed.
func TestContract(t *testing.T) {
	contract.Compare(t, "flags-nvtopo-exporter.txt", contract.Commands(newCommand(func(string) string { return "" })))
}

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"testing"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster/realnode"
	"github.com/nvtopo/nvtopo/internal/testkit"
)

// TestMain is also the first process of every node.
func TestMain(m *testing.M) {
	realnode.Init()
	if os.Getenv("SKIP_NODE") == "1" {
		_, _ = fmt.Println("SKIP_NODE=1: the tests on a real node are left out")
		return
	}
	if err := realnode.Check(testkit.Bin()); err != nil {
		fmt.Fprintln(os.Stderr, err, "(SKIP_NODE=1 leaves these tests out)")
		os.Exit(1)
	}
	os.Exit(testkit.Main(m))
}

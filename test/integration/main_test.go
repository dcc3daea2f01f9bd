// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"os"
	"testing"

	"github.com/nvtopo/nvtopo/internal/testkit"
)

func TestMain(m *testing.M) {
	code := testkit.Main(m)
	if err := idle.stop(); err != nil {
		fmt.Fprintln(os.Stderr, "stop the clusters:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

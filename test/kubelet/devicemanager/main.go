// SPDX-License-Identifier: Apache-2.0

package devicemanager

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"testing"

	"github.com/nvtopo/nvtopo/internal/testkit"
)

const (
	rootDir    = "/var/lib/kubelet"
	markerFile = rootDir + "/nvtopo-test" // only ever written to our own tmpfs
	startedEnv = "NVTOPO_TEST_KUBELET"    // stops a loop of starts if isolation fails
	skipEnv    = "SKIP_NODE"
)

// Main isolates the test binary and runs its tests. It returns the exit code for os.Exit. With
// SKIP_NODE=1 the tests that call [Start] skip themselves, and the last line of output reports it.
func Main(m *testing.M) int {
	if skipped() {
		code := m.Run()
		fmt.Fprintln(os.Stderr, skipEnv+"=1: the tests on a real kubelet device manager were not run")
		return code
	}
	if err := cmp.Or(testkit.DirectKlog(io.Discard, 2), isolate()); err != nil {
		fmt.Fprintf(os.Stderr, "a real kubelet device manager cannot be run: %v\nset %s=1 to do without these tests\n", err, skipEnv)
		return 1
	}
	return m.Run()
}

func skipped() bool { return os.Getenv(skipEnv) == "1" }

func isolated() bool {
	_, err := os.Stat(markerFile)
	return err == nil
}

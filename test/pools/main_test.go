// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"fmt"
	"os"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"k8s.io/klog/v2"

	"github.com/nvtopo/nvtopo/internal/testkit"
)

func TestMain(m *testing.M) {
	log.SetLogger(klog.Background())
	code := testkit.Main(m)
	if err := stopShared(); err != nil {
		fmt.Fprintln(os.Stderr, "stop the shared cluster:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

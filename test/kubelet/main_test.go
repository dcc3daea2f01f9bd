// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"os"
	"testing"

	"github.com/nvtopo/nvtopo/test/kubelet/devicemanager"
)

func TestMain(m *testing.M) { os.Exit(devicemanager.Main(m)) }

// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"os"
	"testing"
	"time"

	"github.com/nvtopo/nvtopo/internal/testkit"
)

// patience bounds every wait of a test.
const patience = 2 * time.Minute

func TestMain(m *testing.M) { os.Exit(testkit.Main(m)) }

// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"os"
	"testing"

	"github.com/nvtopo/nvtopo/internal/testrig"
)

func TestMain(m *testing.M) { os.Exit(testrig.Main(m)) }

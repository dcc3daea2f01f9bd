// SPDX-License-Identifier: Apache-2.0

package uninstall

import (
	"testing"

	"github.com/nvtopo/nvtopo/pkg/node/exporter"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/verify"
)

// TestManagers: the plan recognises the programs by their field managers.
func TestManagers(t *testing.T) {
	for got, want := range map[string]string{
		exporterManager: exporter.FieldManager, aliasManager: exporter.AliasFieldManager, agentManager: verify.FieldManager,
	} {
		if got != want {
			t.Errorf("manager %q, want %q", got, want)
		}
	}
}

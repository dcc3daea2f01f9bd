// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestRemovalText: kept objects are named, the first few of each kind.
func TestRemovalText(t *testing.T) {
	r := &removal{
		Steps: []removalStep{{Stage: "agent", Action: "delete", Kind: "DaemonSet", Namespace: "nvtopo-system", Name: "nvtopo-node-agent"}},
		Kept: []keptObject{
			{"Invoice", "", "a", "money"},
			{"Invoice", "", "b", "money"},
			{"Invoice", "", "c", "money"},
			{"Invoice", "", "d", "money"},
			{"Invoice", "", "e", "money"},
			{"PriceBook", "", "default", "money"},
			{"TenantAccount", "", "team-a", "money"},
			{"TenantAccount", "", "team-b", "money"},
		},
	}
	var b bytes.Buffer
	if err := r.write(&b); err != nil {
		t.Fatal(err)
	}
	const want = `STAGE  ACTION  OBJECT                                     WITHOUT
agent  delete  DaemonSet nvtopo-system/nvtopo-node-agent

kept 5 of kind Invoice (a, b, c and 2 more): money
kept PriceBook default: money
kept 2 of kind TenantAccount (team-a, team-b): money
With -o json this names each object that stays and all that a change takes away.
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

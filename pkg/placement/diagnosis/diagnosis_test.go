// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestJSONNames: the names in the JSON stay. Other programs read them, of this release and of the
// one before.
func TestJSONNames(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	usage := Usage{Used: map[string][]string{"r": {"GPU-a"}}, Counted: map[string]int{"r": 1}, Generation: 2, Revision: 3, Current: true}
	state := State{
		Version: Version, Name: "s", At: at, Synced: true, Leader: "l", LastSweep: &at, RequestTimeout: metav1.Duration{Duration: time.Minute},
		Profiles: []Profile{{Name: "p", Resources: []string{"r"}, DefaultPolicy: "best-effort", AllowNoGraph: true, CountStale: true}},
		Claims:   []Reservation{{Pod: "ns/p", Node: "n", UID: "u", Phase: "binding", Since: at, GPUs: []string{"GPU-a"}}},
		Holds:    []NominatedReservation{{UID: "u", Node: "n", Until: at, GPUs: []string{"GPU-a"}}},
		Gangs: []Gang{{Gang: "g", Pods: 3, Waits: "w", Until: &at, Attempt: &GangAttempt{
			Phase: "ending", Since: at, Why: "y", Held: []types.UID{"u"}, Reserved: []types.UID{"v"}, Waiting: []types.UID{"x"},
		}}},
		Widened: []types.UID{"u"},
		Nodes: []Node{{
			Name: "n", NodeUID: "nu", ResourceVersion: "7", Counts: true, Why: "w", ExporterUntil: &at, AgentUntil: &at, Revision: 4,
			Memo: &usage, Derived: &Usage{}, Indexed: map[string][]string{"r": {"GPU-b"}},
			Offered: map[string][]string{"r": {"GPU-a", "GPU-b"}}, HeldBack: &HeldBack{ResourceVersion: "8", Since: at, GraphOnly: true},
		}},
	}
	got, err := json.MarshalIndent(state, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	const want = `{
 "version": 1,
 "name": "s",
 "at": "2026-01-01T00:00:00Z",
 "synced": true,
 "leader": "l",
 "lastSweep": "2026-01-01T00:00:00Z",
 "requestTimeout": "1m0s",
 "profiles": [
  {
   "name": "p",
   "resources": [
    "r"
   ],
   "defaultPolicy": "best-effort",
   "allowNoGraph": true,
   "countStale": true
  }
 ],
 "claims": [
  {
   "pod": "ns/p",
   "node": "n",
   "uid": "u",
   "phase": "binding",
   "since": "2026-01-01T00:00:00Z",
   "gpus": [
    "GPU-a"
   ]
  }
 ],
 "holds": [
  {
   "uid": "u",
   "node": "n",
   "until": "2026-01-01T00:00:00Z",
   "gpus": [
    "GPU-a"
   ]
  }
 ],
 "gangs": [
  {
   "gang": "g",
   "pods": 3,
   "waits": "w",
   "until": "2026-01-01T00:00:00Z",
   "attempt": {
    "phase": "ending",
    "since": "2026-01-01T00:00:00Z",
    "why": "y",
    "held": [
     "u"
    ],
    "reserved": [
     "v"
    ],
    "waiting": [
     "x"
    ]
   }
  }
 ],
 "widened": [
  "u"
 ],
 "nodes": [
  {
   "name": "n",
   "nodeUID": "nu",
   "resourceVersion": "7",
   "counts": true,
   "why": "w",
   "exporterUntil": "2026-01-01T00:00:00Z",
   "agentUntil": "2026-01-01T00:00:00Z",
   "revision": 4,
   "memo": {
    "used": {
     "r": [
      "GPU-a"
     ]
    },
    "counted": {
     "r": 1
    },
    "generation": 2,
    "revision": 3,
    "current": true
   },
   "derived": {},
   "indexed": {
    "r": [
     "GPU-b"
    ]
   },
   "offered": {
    "r": [
     "GPU-a",
     "GPU-b"
    ]
   },
   "heldBack": {
    "resourceVersion": "8",
    "since": "2026-01-01T00:00:00Z",
    "graphOnly": true
   }
  }
 ]
}`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("(-want,+got):\n%s", diff)
	}
}

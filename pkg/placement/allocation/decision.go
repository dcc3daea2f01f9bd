// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// DecisionVersion is the version of the record of a decision that this package writes, and the only one
// that it reads. As with Version, a field that may be ignored can be added to it.
const DecisionVersion = 1

// Limits of the record. One is written for each pod, to be read by people, so it is short; a record that
// is read may be of a later release.
const (
	MaxDecisionBytes     = 512
	maxDecisionRead      = 4 << 10
	maxDecisionCandidate = 16
	maxDecisionReasons   = 64
)

// Decision records why a pod's node was chosen: the value of DecisionKey. No program decides by it.
type Decision struct {
	Version int `json:"v"`
	// Node is the chosen node, and At the time when its GPUs were chosen. A record whose node or time differs
	// from the pod's allocation belongs to another allocation.
	Node string    `json:"node"`
	At   time.Time `json:"at"`
	// Gang: the node is from the plan of the pod's gang, and no others were compared.
	Gang bool `json:"gang,omitempty"`
	// Band is the quality tier of the chosen set, from 0, compared with the best ring of as many GPUs on this
	// machine when empty; BestRing is that ring's bandwidth in kB/s.
	Band     int   `json:"band"`
	BestRing int64 `json:"best,omitempty"`
	// Candidates are the chosen node and the others with the best scores.
	Candidates []Candidate `json:"c,omitempty"`
	// Scored is the number of nodes that were compared, and Refused the number of refused nodes by reason.
	// Nodes that PreFilter did not list are in neither.
	Scored  int            `json:"of,omitempty"`
	Refused map[string]int `json:"no,omitempty"`
	// Millis is the estimated time of an all-reduce on the chosen set; 0 for one GPU.
	Millis float64 `json:"ms,omitempty"`
	Left   *Left   `json:"left,omitempty"`
}

// Left is a node with faster links that was left to larger pods.
type Left struct {
	Node   string  `json:"n"`
	Model  string  `json:"m,omitempty"` // of its GPUs, in the form of node labels
	Millis float64 `json:"ms"`          // of the same all-reduce
	PodsOf int     `json:"of"`          // GPUs of these pods
}

// String returns for example "node-7 (NVIDIA-H200) 3.5 ms, left to pods of 8".
func (l *Left) String() string {
	model := ""
	if l.Model != "" {
		model = " (" + l.Model + ")"
	}
	return fmt.Sprintf("%s%s %s, left to pods of %d", l.Node, model, nvtopo.FormatMillis(l.Millis), l.PodsOf)
}

// Candidate is one node's set and score for the pod. The terms are in thousandths of the best among the
// compared nodes; nil if it was not compared.
type Candidate struct {
	Node  string `json:"n"`
	Ring  int64  `json:"r,omitempty"` // of the set, kB/s; 0 for one GPU
	Terms *Terms `json:"t,omitempty"`
	Score int    `json:"s,omitempty"` // TopologyAware's own, in hundredths of 100 points; 0: not compared
}

// Terms are the bandwidth of the ring, the latency of its weakest link, and the capacity left for later
// pods, each from 0 to 1000.
type Terms [3]int

// Encode returns the annotation's value, of at most MaxDecisionBytes: if it is too long, the last
// candidates are left out first, then the reasons with the fewest nodes, then Left.
func (d *Decision) Encode() (string, error) {
	short := *d
	short.At = d.At.UTC().Truncate(time.Second)
	for {
		b, err := json.Marshal(&short)
		switch {
		case err != nil:
			return "", fmt.Errorf("encoding a decision: %w", err)
		case len(b) <= MaxDecisionBytes:
			return string(b), nil
		case len(short.Candidates) > 1:
			short.Candidates = short.Candidates[:len(short.Candidates)-1]
		case len(short.Refused) > 0:
			short.Refused = withoutFewest(short.Refused)
		case short.Left != nil:
			short.Left = nil
		case len(short.Candidates) > 0:
			short.Candidates = nil
		default:
			return "", fmt.Errorf("encoding a decision: %d bytes, at most %d are written", len(b), MaxDecisionBytes)
		}
	}
}

// withoutFewest returns a copy without the reason with the fewest nodes.
func withoutFewest(refused map[string]int) map[string]int {
	reasons := slices.Collect(maps.Keys(refused))
	fewest := slices.MinFunc(reasons, func(a, b string) int { return cmp.Or(cmp.Compare(refused[a], refused[b]), strings.Compare(b, a)) })
	out := maps.Clone(refused)
	delete(out, fewest)
	return out
}

// ParseDecision reads a value of DecisionKey. Unknown fields are ignored.
func ParseDecision(v string) (*Decision, error) {
	if len(v) > maxDecisionRead {
		return nil, fmt.Errorf("%s: %d bytes, at most %d are read", DecisionKey, len(v), maxDecisionRead)
	}
	d := &Decision{}
	err := json.Unmarshal([]byte(v), d)
	if later := laterDecision(v); later != nil {
		err = later
	}
	if err == nil {
		err = d.validate()
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", DecisionKey, err)
	}
	return d, nil
}

// laterDecision returns an ErrNewerVersion if the text has a later version; its other fields do not
// matter.
func laterDecision(v string) error {
	var only struct {
		Version int `json:"v"`
	}
	if json.Unmarshal([]byte(v), &only) == nil && only.Version > DecisionVersion {
		return fmt.Errorf("version %d, at most %d is read: %w", only.Version, DecisionVersion, ErrNewerVersion)
	}
	return nil
}

func (d *Decision) validate() error {
	switch {
	case d.Version != DecisionVersion:
		return fmt.Errorf("version %d, want %d", d.Version, DecisionVersion)
	case d.Node == "":
		return errors.New("node is empty")
	case min(int64(d.Band), d.BestRing, int64(d.Scored)) < 0 || d.Millis < 0:
		return errors.New("a number is below 0")
	case len(d.Candidates) > maxDecisionCandidate:
		return fmt.Errorf("c: %d candidates, at most %d", len(d.Candidates), maxDecisionCandidate)
	case len(d.Refused) > maxDecisionReasons:
		return fmt.Errorf("no: %d reasons, at most %d", len(d.Refused), maxDecisionReasons)
	}
	for i := range d.Candidates {
		if c := &d.Candidates[i]; c.Node == "" || c.Ring < 0 || c.Score < 0 {
			return fmt.Errorf("c[%d]: want a node, and no number below 0", i)
		}
	}
	for reason, nodes := range d.Refused {
		if reason == "" || nodes < 1 {
			return fmt.Errorf("no: %d nodes for %q", nodes, reason)
		}
	}
	return d.Left.validate()
}

func (l *Left) validate() error {
	switch {
	case l == nil:
		return nil
	case l.Node == "":
		return errors.New("left: node is empty")
	case l.Millis < 0 || l.PodsOf < 0:
		return errors.New("left: a number is below 0")
	}
	return nil
}

// Of reports whether the record belongs to this allocation.
func (d *Decision) Of(a *Allocation) bool {
	return d.Node == a.Node && d.At.Equal(a.Assumed.UTC().Truncate(time.Second))
}

// SPDX-License-Identifier: Apache-2.0

package gangrequest

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"strconv"
	"strings"

	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	v1 "k8s.io/api/core/v1"
)

// State is the progress of a gang's binding: StateKey's value.
type State struct {
	Attempt int64 `json:"attempt"` // number of attempts to bind the gang, from 1
	Whole   bool  `json:"whole"`   // all members of the attempt are bound
}

// Encode returns the annotation's value.
func (s State) Encode() string { return fmt.Sprintf(`{"attempt":%d,"whole":%t}`, s.Attempt, s.Whole) }

// ParseState reads a value of StateKey. It takes only values that Encode writes, since a state that is not
// whole lets a gang be rolled back.
func ParseState(v string) (State, error) {
	var s State
	if len(v) > maxInput {
		return s, fmt.Errorf("%s: %d bytes, at most %d are read", StateKey, len(v), maxInput)
	}
	if err := json.Unmarshal([]byte(v), &s); err != nil {
		return State{}, fmt.Errorf("%s: %w", StateKey, err)
	}
	if s.Attempt < 1 || s.Encode() != v {
		return State{}, fmt.Errorf("%s: %s is not as the scheduler writes it", StateKey, quoted(v))
	}
	return s, nil
}

// StateOf returns the state that is written on a group; ok is false without a group, and if its state is
// absent or cannot be read. Such a gang must never be rolled back.
func StateOf(group *schedulingv1alpha1.PodGroup) (s State, ok bool) {
	if group == nil {
		return s, false
	}
	s, err := ParseState(group.Annotations[StateKey])
	return s, err == nil
}

// Placement describes where a gang was placed: PlacementKey's value.
type Placement struct {
	Level string `json:"level"` // of the smallest domain with all members
	// Domains are those with members, by level.
	Domains map[string][]string `json:"domains"`
	// Fewest is the least number of domains in the best plan for such a gang, by level.
	Fewest   map[string]int `json:"fewest"`
	Quality  string         `json:"quality"`
	Estimate Estimate       `json:"estimateMs"`
	// MessageBytes is the size of each GPU's message in the estimated all-reduce.
	MessageBytes int64 `json:"messageBytes"`
	Crossings    int   `json:"crossings"`
	Exact        bool  `json:"exact"`
	// Model is the GPU model of the members, Chosen a short description of their GPUs, and Others the best
	// plan on each other model that had room, for people; see Summary.
	Model  string   `json:"model,omitempty"`
	Chosen string   `json:"chosen,omitempty"`
	Others []string `json:"others,omitempty"`
}

// Summary returns for example "8 × NVIDIA-H200 in rack-2, 3.5 ms; rack-1 (NVIDIA-L40S) 16.7 ms": the
// choice and its alternatives. It is empty for members without GPUs.
func (p *Placement) Summary() string {
	if p.Chosen == "" {
		return ""
	}
	return strings.Join(append([]string{p.Chosen}, p.Others...), "; ")
}

// Estimate is the time of an all-reduce: between the nodes by the rules of thumb of fabric.Compat, and in
// the nodes and between them.
type Estimate struct {
	Ring         Millis `json:"ring"`
	Tree         Millis `json:"tree"`
	Other        Millis `json:"other"`
	Hierarchical Millis `json:"hierarchical"`
}

// Millis is a time in milliseconds. An unknown time is infinite, and null in JSON.
type Millis float64

// MarshalJSON writes a number or null.
func (m Millis) MarshalJSON() ([]byte, error) {
	if f := float64(m); !math.IsInf(f, 0) && !math.IsNaN(f) {
		return json.Marshal(f)
	}
	return []byte("null"), nil
}

// UnmarshalJSON reads a number or null.
func (m *Millis) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		*m = Millis(math.Inf(1))
		return nil
	}
	return json.Unmarshal(b, (*float64)(m))
}

// Bounds of the longer annotations: all of an object together have 256 KiB.
const (
	maxPlacement = 64 << 10
	maxNodes     = 96 << 10
)

// Encode returns the annotation's value. A list of domains that would make it too long, the longest first,
// is left out.
func (p *Placement) Encode() (string, error) {
	short := *p
	for {
		b, err := json.Marshal(&short)
		if err != nil {
			return "", fmt.Errorf("encoding a placement: %w", err)
		}
		if len(b) <= maxPlacement {
			return string(b), nil
		}
		longest := ""
		for level, domains := range short.Domains {
			if n := len(short.Domains[longest]); len(domains) > n || len(domains) == n && level > longest {
				longest = level
			}
		}
		if longest == "" {
			return "", fmt.Errorf("encoding a placement: %d bytes, at most %d are written", len(b), maxPlacement)
		}
		short.Domains = maps.Clone(short.Domains)
		delete(short.Domains, longest)
	}
}

// ParsePlacement reads a value of PlacementKey. Unknown fields are ignored: a later release may write
// some.
func ParsePlacement(v string) (*Placement, error) {
	if len(v) > maxPlacement {
		return nil, fmt.Errorf("%s: %d bytes, at most %d are read", PlacementKey, len(v), maxPlacement)
	}
	p := &Placement{}
	if err := json.Unmarshal([]byte(v), p); err != nil {
		return nil, fmt.Errorf("%s: %w", PlacementKey, err)
	}
	if p.Level == "" || p.Crossings < 0 {
		return nil, fmt.Errorf("%s: want a level, and crossings that are not below 0", PlacementKey)
	}
	return p, nil
}

// PlacementOf returns the placement written on a gang's group, or without a group on the pod of the first
// rank; nil if there is none that can be read.
func PlacementOf(group *schedulingv1alpha1.PodGroup, g *Gang) *Placement {
	text := ""
	switch {
	case group != nil:
		text = group.Annotations[PlacementKey]
	case len(g.Members.Live) > 0:
		text = g.Members.Live[0].Annotations[PlacementKey]
	}
	p, err := ParsePlacement(text)
	if err != nil {
		return nil
	}
	return p
}

// FormatNodes returns a value of NodesKey: the nodes of a gang, each at the position of its first rank. It
// is empty if there are too many for an annotation.
func FormatNodes(nodes []string) string {
	v := strings.Join(nodes, ",")
	if len(v) > maxNodes {
		return ""
	}
	return v
}

// FormatRank returns a value of RankKey.
func FormatRank(rank int) string { return strconv.Itoa(rank) }

// RankOf returns the rank that is written on a pod; ok is false if there is none that can be read.
func RankOf(p *v1.Pod) (rank int, ok bool) {
	v, ok := p.Annotations[RankKey]
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(v, 10, 31)
	if err != nil || n >= MaxMembers || FormatRank(int(n)) != v {
		return 0, false
	}
	return int(n), true
}

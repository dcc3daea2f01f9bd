// SPDX-License-Identifier: Apache-2.0

package podrequest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// input is an annotation that users may set.
type input struct {
	key     string
	aliases []string
	read    func(r *Request, value string, opt *Options) error
}

// inputs returns the annotations in the order in which they are read.
func inputs() []input {
	return []input{
		{TopologyPolicyKey, policyAliases, (*Request).readPolicy},
		{NUMAAffinityKey, affinityAliases, (*Request).readAffinity},
		{MinLinkKey, nil, (*Request).readMinLink},
		{MinBandwidthKey, nil, (*Request).readMinBandwidth},
		{AllowMixedModelsKey, nil, (*Request).readMixedModels},
		{GPUModelKey, nil, (*Request).readModels},
		{MinGPUMemoryKey, nil, (*Request).readMinMemory},
		{MessageSizeKey, nil, (*Request).readMessageSize},
		{MovableKey, nil, (*Request).readMovable},
	}
}

// InputKeys lists the pod annotations that users may set, aliases included.
func InputKeys() []string {
	out := []string{hamiPolicyKey}
	for _, in := range inputs() {
		out = append(append(out, in.key), in.aliases...)
	}
	return out
}

// lookup returns the value of the key, or of the first alias that is set, and the key that has it.
func (in *input) lookup(ann map[string]string) (value, key string, ok bool) {
	if v, ok := ann[in.key]; ok {
		return v, in.key, true
	}
	for _, k := range in.aliases {
		if v, ok := ann[k]; ok {
			return v, k, true
		}
	}
	return "", "", false
}

func (r *Request) readAnnotations(ann map[string]string, opt *Options) error {
	r.Constraint.Policy, r.Affinity = opt.DefaultPolicy, opt.DefaultAffinity
	if ann[hamiPolicyKey] == hamiTopologyAware {
		r.Constraint.Policy = nvtopo.PolicyBestEffort
	}
	for _, in := range inputs() {
		value, key, ok := in.lookup(ann)
		if !ok {
			continue
		}
		err := tooLong(value)
		if err == nil {
			err = in.read(r, value, opt)
		}
		if err != nil {
			return fmt.Errorf("annotation %s: %w", key, err)
		}
	}
	r.NoTopology = r.Constraint.Policy == nvtopo.PolicyNone
	return nil
}

func (r *Request) readPolicy(v string, opt *Options) error {
	p, err := nvtopo.ParsePolicy(v)
	if err != nil {
		return err
	}
	if !slices.Contains(opt.Supported, p) {
		return fmt.Errorf("policy %s is not among the scheduler's supportedPolicies", p)
	}
	r.Constraint.Policy = p
	return nil
}

func (r *Request) readAffinity(v string, _ *Options) (err error) {
	r.Affinity, err = ParseAffinity(v)
	return err
}

func (r *Request) readMinLink(v string, _ *Options) (err error) {
	r.Constraint.MinLink, err = nvtopo.ParseClass(v)
	return err
}

func (r *Request) readMinBandwidth(v string, _ *Options) (err error) {
	r.Constraint.MinBandwidth, err = nvtopo.ParseBandwidth(v)
	return err
}

func (r *Request) readMixedModels(v string, _ *Options) (err error) {
	r.Constraint.AllowMixedModels, err = ParseBool(v)
	return err
}

func (r *Request) readMovable(v string, _ *Options) error {
	movable, err := ParseBool(v)
	r.Immovable = !movable
	return err
}

// ParseBool reads a value that is true or false.
func ParseBool(v string) (bool, error) {
	b, err := strconv.ParseBool(v)
	if err != nil {
		return false, fmt.Errorf("%.64q is neither true nor false", v) // messages have little room
	}
	return b, nil
}

func (r *Request) readModels(v string, _ *Options) error {
	for m := range strings.SplitSeq(v, ",") {
		n := normalModel(m)
		if n == "" {
			return fmt.Errorf("empty model in %q", v)
		}
		if r.models = append(r.models, n); len(r.models) > maxModels {
			return fmt.Errorf("more than %d models", maxModels)
		}
	}
	return nil
}

func (r *Request) readMinMemory(v string, _ *Options) (err error) {
	r.minGPUMemory, err = parseBytes(v)
	return err
}

// parseBytes reads a quantity above zero.
func parseBytes(v string) (int64, error) {
	q, err := parseQuantity(v)
	if err != nil {
		return 0, err
	}
	if q.Sign() <= 0 {
		return 0, fmt.Errorf("%q is not above zero", v)
	}
	return amountOf(&q), nil
}

func (r *Request) readMessageSize(v string, _ *Options) (err error) {
	r.MessageBytes, err = ParseMessageSize(v)
	return err
}

// ParseMessageSize reads a value of MessageSizeKey, in bytes.
func ParseMessageSize(v string) (int64, error) {
	if err := tooLong(v); err != nil {
		return 0, err
	}
	return parseBytes(v)
}

// CanonicalKey returns nvtopo's key for an alias of it, and any other key unchanged.
func CanonicalKey(key string) string {
	if key == hamiPolicyKey {
		return TopologyPolicyKey
	}
	for _, in := range inputs() {
		if slices.Contains(in.aliases, key) {
			return in.key
		}
	}
	return key
}

// SPDX-License-Identifier: Apache-2.0

package gangrequest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

const (
	// maxInput is the longest value that is read, in bytes; as pkg/placement/podrequest's.
	maxInput = 1024
	// maxQuoted bounds the part of a value that a message repeats: events and status have little room.
	maxQuoted = 64
	// maxMessages is the greatest number of faults and of warnings of a gang.
	maxMessages = 8
)

// field is the place of a value: an object and a key.
type field struct{ object, key string }

func (f field) String() string {
	if strings.HasPrefix(f.key, "spec.") {
		return f.object + ": " + f.key
	}
	return f.object + ": metadata.annotations[" + f.key + "]"
}

// reader reads a gang once.
type reader struct {
	gang  *Gang
	group *schedulingv1alpha1.PodGroup
	pods  []*v1.Pod // in the order of their ranks: the values of the first are used

	faults, warnings []string
}

func (r *reader) fault(f field, format string, args ...any) {
	r.faults = append(r.faults, f.String()+": "+fmt.Sprintf(format, args...))
}

func (r *reader) warn(f field, format string, args ...any) {
	r.warnings = append(r.warnings, f.String()+": "+fmt.Sprintf(format, args...))
}

// first returns a field of the first member.
func (r *reader) first(key string) field {
	if len(r.pods) == 0 {
		return field{r.gang.Key.String(), key}
	}
	return field{podName(r.pods[0]), key}
}

func (r *reader) groupField(key string) field { return field{r.gang.Key.String(), key} }

func podName(p *v1.Pod) string { return "Pod " + p.Namespace + "/" + p.Name }

// value returns the group's value under a key, or else that of the first member that has one. Different
// values on other members are a warning.
func (r *reader) value(key string) (string, field, bool) {
	if r.group != nil {
		if v, ok := r.group.Annotations[key]; ok {
			return v, r.groupField(key), true
		}
	}
	i := slices.IndexFunc(r.pods, func(p *v1.Pod) bool { _, ok := p.Annotations[key]; return ok })
	if i < 0 {
		return "", field{}, false
	}
	value, at := r.pods[i].Annotations[key], field{podName(r.pods[i]), key}
	for _, p := range r.pods[i+1:] {
		if v, ok := p.Annotations[key]; ok && v != value {
			r.warn(field{podName(p), key}, "%s, but %s of %s counts", quoted(v), quoted(value), at.object)
			break
		}
	}
	return value, at, true
}

// read parses the value under a key, if there is one. A value that cannot be parsed is a fault.
func (r *reader) read(key string, parse func(v string) error) (field, bool) {
	v, at, ok := r.value(key)
	if !ok {
		return at, false
	}
	err := tooLong(v)
	if err == nil {
		err = parse(v)
	}
	if err != nil {
		r.fault(at, "%v", err)
		return at, false
	}
	return at, true
}

// readCount reads the number of pods of a gang without a group; 0 if not given.
func (r *reader) readCount(key string) int {
	n := 0
	parse := func(v string) (err error) { n, err = parseCount(v); return err }
	if _, ok := r.read(key, parse); ok {
		return n
	}
	if len(r.faults) == 0 {
		r.fault(r.first(key), "is missing: it says how many pods the gang has")
	}
	return 0
}

// readUnknown warns of unknown annotations in nvtopo's domain.
func (r *reader) readUnknown() {
	const ours = "nvtopo.dev/"
	if r.group != nil {
		known := append(slices.Clone(wishKeys[:]), MixedModelsKey, MessageSizeKey, StateKey, PlacementKey, NodesKey)
		for _, key := range slices.Sorted(maps.Keys(r.group.Annotations)) {
			if strings.HasPrefix(key, ours) && !slices.Contains(known, key) {
				r.warn(r.groupField(clip(key)), "is no annotation of a PodGroup")
			}
		}
	}
	if len(r.pods) == 0 {
		return
	}
	known := slices.Concat(InputKeys(), podrequest.InputKeys(), []string{podrequest.PromisedModelKey, RankKey, PlacementKey, NodesKey})
	for _, key := range slices.Sorted(maps.Keys(r.pods[0].Annotations)) {
		switch {
		case !strings.HasPrefix(key, ours):
		case key == NearKey:
			r.warn(r.first(key), "is not for pods that are of a gang")
		case key == GangKey && r.gang.Key.Source != SourceAnnotation:
			r.warn(r.first(key), "does not count beside %s", r.gang.Key)
		case !slices.Contains(known, key) && !allocation.IsOutputKey(key):
			r.warn(r.first(clip(key)), "is no annotation of a pod")
		}
	}
}

func tooLong(v string) error {
	if len(v) > maxInput {
		return fmt.Errorf("%d bytes, at most %d are read", len(v), maxInput)
	}
	return nil
}

// parseCount reads a number of members.
func parseCount(v string) (int, error) {
	n, err := strconv.ParseUint(v, 10, 31)
	if err != nil || n < 1 || n > MaxMembers {
		return 0, fmt.Errorf("%s: want a number of pods, 1 to %d", quoted(v), MaxMembers)
	}
	return int(n), nil
}

// parseLevel reads the name of a level, or its node label.
func parseLevel(v string) (string, error) {
	const longest = 253 + 1 + 63 // of a node label
	if v == "" || len(v) > longest || strings.ContainsFunc(v, strangeInName) {
		return "", fmt.Errorf("%s: want the name of a level or a node label", quoted(v))
	}
	return v, nil
}

// strangeInName reports whether a character occurs in no name of a level, a label or a gang.
func strangeInName(c rune) bool {
	return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("-_./", c)
}

func quoted(s string) string { return strconv.Quote(clip(s)) }

func clip(s string) string {
	if len(s) > maxQuoted {
		return s[:maxQuoted] + "..."
	}
	return s
}

// cut keeps the first messages, and appends the number of the others.
func cut(messages []string) []string {
	if len(messages) <= maxMessages {
		return messages
	}
	rest := fmt.Sprintf("and %d more", len(messages)-maxMessages)
	return append(slices.Clone(messages[:maxMessages]), rest)
}

func join(faults []string) error { return errors.New(strings.Join(faults, "; ")) }

// SPDX-License-Identifier: Apache-2.0

package gangrequest

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1"
)

// Bounds and defaults of a gang.
const (
	// MaxMembers is the greatest number of pods of a gang.
	MaxMembers = 1 << 14
	// DefaultScheduleTimeout is how long a gang that was never whole may be partly bound, unless the
	// scheduler's argument scheduleTimeout is set. It is twice as long as a member whose binding failed keeps
	// its place: the other half is for finding it another one.
	DefaultScheduleTimeout = 10 * time.Minute
	// CommunicationPatience is how long a communication-heavy gang waits for a better level.
	CommunicationPatience = 5 * time.Minute
	// MaxPatience bounds patience and the time that members wait for the others.
	MaxPatience = 24 * time.Hour
)

// ErrNoGroup is returned while the PodGroup that the pods name does not exist.
var ErrNoGroup = errors.New("there is no such PodGroup")

// Gang is a gang as its group and its pods describe it at one time; it is immutable.
type Gang struct {
	Key Key
	UID types.UID // of the PodGroup; empty for other sources
	// Minimum is the number of members that start together, all or none. At least 1.
	Minimum int
	// Size is the number of members that the gang will have; 0 if not given.
	Size    int
	Wishes  Wishes
	Members Members
	// Priority is the lowest among the live members.
	Priority int32
	// MemberWait is the PodGroup's scheduleTimeoutSeconds: how long members with a place wait for the others
	// before the gang runs. 0: the scheduler decides.
	MemberWait time.Duration
	// Admitted: Kueue admitted the gang, so its quota is in use while it waits.
	Admitted bool
	// Pinned: Kueue chose the domains of the pods, or is about to. The topology request then leaves Kueue's
	// part out.
	Pinned bool
	// Warnings are probable mistakes of the gang's author, with object and field. The gang can be placed all
	// the same.
	Warnings []string
	// Err is why the gang must not be placed, by object and field; nil if it may. It is
	// ErrNoGroup while the PodGroup is missing.
	Err error

	levels [levelWishes]field // where the levels of Wishes are written
}

// Read returns the gang with this key. The group is its PodGroup, nil if there is none. Pods are those of
// the gang according to KeyOf, in any order. It takes about a microsecond for each of them.
func Read(key Key, group *schedulingv1alpha1.PodGroup, pods []*v1.Pod) *Gang {
	r := &reader{gang: &Gang{Key: key, Minimum: 1}, group: group}
	order := membersOf(pods, false)
	r.pods = order.all()
	r.readName()
	r.readKueue()
	r.readSize()
	r.readWishes()
	r.readUnknown()
	g := r.gang
	if g.Members = order; g.Wishes.ByName {
		g.Members = membersOf(pods, true)
	}
	r.warnings = append(r.warnings, g.Members.Warnings...)
	g.Priority = leastPriority(g.Members.Live)
	g.Warnings = cut(r.warnings)
	if len(r.faults) > 0 && g.Err == nil {
		g.Err = join(cut(r.faults))
	}
	return g
}

// Complete reports whether there are enough members for the gang to start.
func (g *Gang) Complete() bool { return g.Err == nil && g.Members.Count() >= g.Minimum }

func leastPriority(pods []*v1.Pod) int32 {
	if len(pods) == 0 {
		return 0
	}
	least := int32(math.MaxInt32)
	for _, p := range pods {
		least = min(least, corev1.PodPriority(p))
	}
	return least
}

// readName refuses names with characters that must not appear in a message.
func (r *reader) readName() {
	strange := func(c rune) bool { return c == '/' || strangeInName(c) }
	switch name := r.gang.Key.Name; {
	case r.gang.Key.Source != SourceAnnotation:
	case name == "":
		r.fault(r.first(GangKey), "the name is empty")
	case len(name) > maxName:
		r.fault(r.first(GangKey), "the name is longer than %d bytes", maxName)
	case strings.ContainsFunc(name, strange):
		r.fault(r.first(GangKey), "%s: want letters, digits, dashes, dots and underscores", quoted(name))
	}
}

// readSize reads how many members start together, and how many the gang will have.
func (r *reader) readSize() {
	g := r.gang
	switch g.Key.Source {
	case SourcePodGroup:
		r.readGroup()
	case SourceKueue:
		g.Size = r.readCount(kueueCountKey)
	case SourceAnnotation:
		g.Size = r.readCount(GangSizeKey)
	}
	g.Minimum = max(g.Minimum, g.Size)
}

// readGroup reads the PodGroup's fields.
func (r *reader) readGroup() {
	g := r.gang
	if r.group == nil {
		g.Err = fmt.Errorf("%s: %w", g.Key, ErrNoGroup)
		return
	}
	g.UID = r.group.UID
	switch n := r.group.Spec.MinMember; {
	case n == 0:
		r.warn(r.groupField("spec.minMember"), "is missing, and taken to be 1")
	case n < 0 || n > MaxMembers:
		r.fault(r.groupField("spec.minMember"), "%d: want 1 to %d", n, MaxMembers)
	default:
		g.Minimum = int(n)
	}
	if s := r.group.Spec.ScheduleTimeoutSeconds; s != nil {
		if most := int32(MaxPatience / time.Second); *s < 1 || *s > most {
			r.fault(r.groupField("spec.scheduleTimeoutSeconds"), "%d: want 1 to %d", *s, most)
		} else {
			g.MemberWait = time.Duration(*s) * time.Second
		}
	}
}

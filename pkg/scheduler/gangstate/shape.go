// SPDX-License-Identifier: Apache-2.0

package gangstate

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/placement"
)

// maxGangShapes bounds how many shapes the members of one gang may have: the supply of every node is
// computed for each, on the goroutine that schedules.
const maxGangShapes = 64

// shape is the pod class of members: the common properties for which every node has the same free
// capacity, as far as it is computed here. Claims are not part of it, except for the location of bound
// volumes: other plugins enforce their further constraints, by refusing a node. So members whose claims
// alone differ are of one shape until one of them is refused on a node. Those without claims are of
// another shape: a refusal applies to all of them.
type shape struct {
	key       string // identifies the inputs of the supply
	refusals  string // key under which refusals of a node are remembered; empty if there are none
	claims    bool   // its members have claims
	own       bool   // of one member that was refused
	signature string // of Demand
	volumes   volumes
	placement.Shape
}

// claimsOf returns the claims that may bind a pod to a node, by name.
func claimsOf(pod *v1.Pod) (claims []string) {
	for i := range pod.Spec.Volumes {
		switch v := &pod.Spec.Volumes[i]; {
		case v.PersistentVolumeClaim != nil:
			claims = append(claims, v.PersistentVolumeClaim.ClaimName)
		case v.Ephemeral != nil:
			claims = append(claims, pod.Name+"-"+v.Name)
		}
	}
	for i := range pod.Spec.ResourceClaims {
		if c := &pod.Spec.ResourceClaims[i]; c.ResourceClaimName != nil {
			claims = append(claims, *c.ResourceClaimName)
		} else {
			claims = append(claims, pod.Name+"-"+c.Name) // made for this pod
		}
	}
	return claims
}

// newShape returns the shape of a pod.
func newShape(pod *v1.Pod, d *placement.Demand) (*shape, error) {
	common, err := placement.NewShape(pod, d)
	if err != nil {
		return nil, fmt.Errorf("pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	s := &shape{Shape: common, signature: d.Signature()}
	s.key = pod.Namespace + " " + s.Class
	if s.claims = len(claimsOf(pod)) > 0; !s.claims {
		s.refusals = s.key
	}
	return s, nil
}

// admits reports whether the node takes such pods, as far as is known without the plugins. An empty node
// has no ports in use.
func (s *shape) admits(info fwk.NodeInfo, empty bool) bool {
	node := info.Node()
	if node == nil {
		return false
	}
	if !s.Eligible.Allows(node) {
		return false
	}
	return empty || s.freePorts(info)
}

// freePorts reports whether no pod on the node has a host port of such pods.
func (s *shape) freePorts(info fwk.NodeInfo) bool {
	return !slices.ContainsFunc(s.Ports, func(p v1.ContainerPort) bool {
		return info.GetUsedPorts().CheckConflict(p.HostIP, string(p.Protocol), p.HostPort)
	})
}

// KeyOf returns the key under which a refusal of a pod's node is remembered: for all members of its
// shape, or for the pod alone if it has claims.
func KeyOf(pod *v1.Pod, d *placement.Demand) string {
	s, err := newShape(pod, d)
	if err != nil {
		return ""
	}
	return s.keyWith(claimsOf(pod))
}

func (s *shape) keyWith(claims []string) string {
	if len(claims) == 0 {
		return s.key
	}
	return s.key + strings.Join(claims, ",")
}

// ownOf returns the shape of one member with claims that was refused on some node; nil if it has none, or
// was not refused. Supplies are computed once for all members that differ in claims alone.
func (b *build) ownOf(pod *v1.Pod, s *shape) *shape {
	if len(b.refused) == 0 {
		return nil
	}
	claims := claimsOf(pod)
	if key := s.keyWith(claims); len(claims) > 0 && b.refused[key] {
		own := *s
		own.Pod, own.refusals, own.own = pod, key, true
		return &own
	}
	return nil
}

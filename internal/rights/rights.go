// SPDX-License-Identifier: Apache-2.0

package rights

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
)

// Right is one verb on one resource. Namespace and Name are empty if the right covers all of them.
type Right struct {
	Verb, Group, Resource, Subresource, Namespace, Name string
}

func (r Right) String() string {
	s := r.Verb + " " + r.Resource
	if r.Subresource != "" {
		s += "/" + r.Subresource
	}
	if r.Group != "" {
		s += "." + r.Group
	}
	if r.Name != "" {
		s += " " + r.Name
	}
	if r.Namespace != "" {
		s += " in " + r.Namespace
	}
	return s
}

// Rule is a rule of a role, in one namespace or, if that is empty, everywhere.
type Rule struct {
	rbacv1.PolicyRule

	Namespace string
}

// Everywhere returns a rule of a ClusterRole that is bound in the whole cluster.
func Everywhere(group string, resources, verbs []string) Rule {
	return Rule{PolicyRule: rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, Verbs: verbs}}
}

// In returns a rule for one namespace, for the objects of these names or, without names, for all.
func In(namespace, group string, resources, verbs []string, names ...string) Rule {
	r := Everywhere(group, resources, verbs)
	r.Namespace, r.ResourceNames = namespace, names
	return r
}

// Allows reports whether the rule grants a right, as RBAC does but without wildcards.
func (r Rule) Allows(want Right) bool {
	resource := want.Resource
	if want.Subresource != "" {
		resource += "/" + want.Subresource
	}
	return slices.Contains(r.Verbs, want.Verb) && slices.Contains(r.APIGroups, want.Group) && slices.Contains(r.Resources, resource) &&
		(r.Namespace == "" || r.Namespace == want.Namespace) && (len(r.ResourceNames) == 0 || slices.Contains(r.ResourceNames, want.Name))
}

// each calls f with every single right that a rule grants.
func (r Rule) each(f func(Right)) {
	names := r.ResourceNames
	if len(names) == 0 {
		names = []string{""}
	}
	for _, verb := range r.Verbs {
		for _, group := range r.APIGroups {
			for _, resource := range r.Resources {
				for _, name := range names {
					resource, sub, _ := strings.Cut(resource, "/")
					f(Right{verb, group, resource, sub, r.Namespace, name})
				}
			}
		}
	}
}

// Unused compares granted rights with requests. It reports each right that no request needed and reasons
// does not explain, and each reason for a right that was used or is not granted. Reasons are keyed by the
// right's String.
func Unused(granted []Rule, requests map[Right]int, reasons map[string]string) (faults []string) {
	reasons = maps.Clone(reasons)
	asked := slices.Collect(maps.Keys(requests))
	for _, g := range granted {
		g.each(func(r Right) {
			one := In(g.Namespace, r.Group, []string{strings.TrimSuffix(r.Resource+"/"+r.Subresource, "/")}, []string{r.Verb})
			if r.Name != "" {
				one.ResourceNames = []string{r.Name}
			}
			used, reason := slices.ContainsFunc(asked, one.Allows), reasons[r.String()]
			switch {
			case !used && reason == "":
				faults = append(faults, fmt.Sprintf("%s: granted, and never used", r))
			case used && reason != "":
				faults = append(faults, fmt.Sprintf("%s: used, although %q", r, reason))
			}
			delete(reasons, r.String())
		})
	}
	for key := range reasons {
		faults = append(faults, key+": has a reason to be unused, and is not granted")
	}
	slices.Sort(faults)
	return faults
}

// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// ClusterTopology says by which node labels the nodes of a cluster are in racks, behind
// switches and so on, and how fast the network between them is. There is one, named default.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,path=clustertopologies,singular=clustertopology,shortName=ct
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Nodes",type=integer,JSONPath=`.status.nodes`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Not a tree",type=string,JSONPath=`.status.conditions[?(@.type=="NotATree")].status`
// +kubebuilder:printcolumn:name="Labels missing",type=string,JSONPath=`.status.conditions[?(@.type=="LabelsMissing")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name == 'default'",message="metadata.name: a cluster has one ClusterTopology, named default"
type ClusterTopology struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   ClusterTopologySpec   `json:"spec"`
	Status ClusterTopologyStatus `json:"status,omitempty"`
}

// ClusterTopologyList is a list of ClusterTopology.
//
// +kubebuilder:object:root=true
type ClusterTopologyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ClusterTopology `json:"items"`
}

// ClusterTopologySpec is the fabric as its operator describes it.
//
// +kubebuilder:validation:XValidation:rule="!has(self.overrides) || self.overrides.all(o, self.levels.exists(l, l.name == o.level))",fieldPath=".overrides",message="overrides: level must be the name of one of levels"
// +kubebuilder:validation:XValidation:rule="!has(self.excluded) || self.excluded.all(e, self.levels.exists(l, l.name == e.level))",fieldPath=".excluded",message="excluded: level must be the name of one of levels"
type ClusterTopologySpec struct {
	// levels of the fabric, outermost first, for example spine and rack. A domain is the path
	// of its labels' values, so racks of two spines may have the same name.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:XValidation:rule="size(self.transformMapEntry(i, l, {l.name: i})) == size(self)",message="levels: name must be unique"
	// +kubebuilder:validation:XValidation:rule="size(self.transformMapEntry(i, l, {l.nodeLabel: i})) == size(self)",message="levels: nodeLabel must be unique"
	Levels []FabricLevel `json:"levels"`
	// root is the link of two nodes that have no domain in common.
	// +optional
	Root *FabricLink `json:"root,omitempty"`
	// overrides give two domains of one level a link of their own, such as a slower cable.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	Overrides []FabricOverride `json:"overrides,omitempty"`
	// nodeBandwidths say what nodes can send at most, whatever links they have. Of several that apply
	// to a node the first counts.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	NodeBandwidths []NodeBandwidth `json:"nodeBandwidths,omitempty"`
	// excluded are domains where no new member of a gang goes, for example before maintenance.
	// +optional
	// +listType=map
	// +listMapKey=level
	// +listMapKey=domain
	// +kubebuilder:validation:MaxItems=256
	Excluded []ExcludedDomain `json:"excluded,omitempty"`
}

// FabricLink is the network between two nodes. What is absent is a rule of thumb: 100 GB/s,
// 100 µs and 1 hop within the innermost level, 50 GB/s, 500 µs and 3 hops elsewhere.
type FabricLink struct {
	// bandwidthGBps is what one node can send to the other at a time, in GB/s (10^9 bytes;
	// a link of 400 Gb/s has 50), as a whole number or a string such as "12.5".
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:XValidation:rule=`type(self) != string || self.matches('^[0-9]{1,7}([.][0-9]{1,6})?$')`,message=`bandwidthGBps: write a number of GB/s without a unit: 100 for 100GB/s, or an eighth, "12.5", for 100Gb/s or 100Gbps`
	// +kubebuilder:validation:XValidation:rule=`type(self) == string && !self.matches('^[0-9]{1,7}([.][0-9]{1,6})?$') || double(self) >= 0.000001 && double(self) <= 1000000.0`,message="bandwidthGBps: above 0 and at most 1000000"
	BandwidthGBps *intstr.IntOrString `json:"bandwidthGBps,omitempty"`
	// latencyMicros is how long a small message takes, in microseconds, as a whole number or
	// a string such as "1.5".
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:XValidation:rule=`type(self) != string || self.matches('^[0-9]{1,7}([.][0-9]{1,3})?$')`,message=`latencyMicros: a number of microseconds without a unit, such as 100 or "1.5"`
	// +kubebuilder:validation:XValidation:rule=`type(self) == string && !self.matches('^[0-9]{1,7}([.][0-9]{1,3})?$') || double(self) >= 0.0 && double(self) <= 1000000.0`,message="latencyMicros: at most 1000000"
	LatencyMicros *intstr.IntOrString `json:"latencyMicros,omitempty"`
	// hops is the number of switches between them.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=64
	Hops int32 `json:"hops,omitempty"`
}

// FabricLevel is one level of the fabric. Its link is that of two nodes whose smallest common
// domain is of this level.
type FabricLevel struct {
	// name of the level, for example rack; pods ask for it. cluster and node are taken.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="!(self in ['cluster', 'node'])",message="name: every fabric has the levels cluster and node"
	Name string `json:"name"`
	// nodeLabel is the label of a Node whose value is the name of its domain.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`
	NodeLabel  string `json:"nodeLabel"`
	FabricLink `json:",inline"`
}

// FabricOverride is the link between two domains of one level.
//
// +kubebuilder:validation:XValidation:rule="self.a != self.b",message="a and b must be two domains"
// +kubebuilder:validation:XValidation:rule="has(self.bandwidthGBps) && has(self.latencyMicros)",message="bandwidthGBps and latencyMicros are needed"
type FabricOverride struct {
	// level of both.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Level string `json:"level"`
	// a is the name of a domain, or its path where others have that name, for example spine-0/rack-1.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=511
	A string `json:"a"`
	// b as a.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=511
	B          string `json:"b"`
	FabricLink `json:",inline"`
}

// NodeBandwidth is what the nodes with a value of a label can send, such as those of an instance type.
type NodeBandwidth struct {
	// nodeLabel is the label of a Node.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`
	NodeLabel string `json:"nodeLabel"`
	// value of the label.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Value string `json:"value"`
	// bandwidthGBps is what such a node can send, in GB/s (10^9 bytes; eight ports of 400 Gb/s are
	// 400), as a whole number or a string such as "12.5".
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:XValidation:rule=`type(self) != string || self.matches('^[0-9]{1,7}([.][0-9]{1,6})?$')`,message=`bandwidthGBps: write a number of GB/s without a unit: 100 for 100GB/s, or an eighth, "12.5", for 100Gb/s or 100Gbps`
	// +kubebuilder:validation:XValidation:rule=`type(self) == string && !self.matches('^[0-9]{1,7}([.][0-9]{1,6})?$') || double(self) >= 0.000001 && double(self) <= 1000000.0`,message="bandwidthGBps: above 0 and at most 1000000"
	BandwidthGBps intstr.IntOrString `json:"bandwidthGBps"`
}

// ExcludedDomain is a part of the fabric that gets no new members of gangs.
type ExcludedDomain struct {
	// level of the domain.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Level string `json:"level"`
	// domain is its name, or its path where others have that name.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=511
	Domain string `json:"domain"`
	// reason is told to whoever asks why nothing goes there.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Reason string `json:"reason,omitempty"`
}

// Condition types of a ClusterTopology; Ready is the third.
const (
	// ConditionNotATree is true while some node has a label of a level, but none of a level
	// further out. Such a node is alone from the missing level on.
	ConditionNotATree = "NotATree"
	// ConditionLabelsMissing is true while some node with GPUs lacks labels. Such a node is
	// alone, and no gang that requires the level goes there.
	ConditionLabelsMissing = "LabelsMissing"
)

// ClusterTopologyStatus is what the scheduler makes of spec and of the nodes' labels.
type ClusterTopologyStatus struct {
	// observedGeneration is the generation of spec that the rest of status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// nodes is how many nodes the cluster has.
	// +optional
	Nodes int32 `json:"nodes"`
	// domains counts the domains of each level, in the order of levels.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	Domains []LevelDomains `json:"domains,omitempty"`
	// conditions: Ready, NotATree and LabelsMissing, by the scheduler.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.all(c, size(c.message) <= 2048)",message="conditions: message of at most 2048 characters"
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// LevelDomains counts the domains of one level.
type LevelDomains struct {
	// level is its name.
	// +kubebuilder:validation:MaxLength=63
	Level string `json:"level"`
	// domains is how many there are; a node without a label is none.
	Domains int32 `json:"domains"`
	// nodes is how many nodes are in one.
	Nodes int32 `json:"nodes"`
	// largest is the number of nodes of the largest.
	Largest int32 `json:"largest"`
}

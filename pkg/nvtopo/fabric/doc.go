// SPDX-License-Identifier: Apache-2.0

// Package fabric places the pods of a gang by the network between the nodes: in the smallest domain of
// the fabric (rack, spine, …) that can hold them. The room on each node is the number of disjoint linked
// sets of GPUs that it can give to these pods.
//
// Its one invariant: Place is a function of its arguments. It locks nothing, keeps nothing, and equal
// inputs give equal plans, on every machine and in every run.
//
// It does not depend on Kubernetes, reserves nothing, and does not decide the order of gangs. Expensive
// values are made once and shared by many plans: the Tree for as long as the labels last, the Slots of a
// set of free GPUs for as long as the machine exists. A plan reads one entry for each node.
//
// For the best plan possible, as patience needs it, callers call Place with the supplies of an empty
// cluster. Members that have their nodes are part of the request.
//
// Where to look: tree.go and build.go are the fabric, packing.go and slots.go the room of one node.
// request.go is a gang's request, gang.go and segments.go divide it into parts, problem.go is one part.
// place.go is the order of the objective; count.go computes how much domains can hold, fewest.go the
// fewest that do, choose.go which are taken, fill.go how many members each gets, nodes.go the nodes
// inside one; spread.go and mixed.go are gangs of more than one part, models.go and bymodel.go those that
// get GPUs of one model of several. lay.go assigns nodes and GPUs to ranks, refuse.go gives the reason
// why there is no plan, rank.go orders members, estimate.go and quality.go judge a plan.
package fabric

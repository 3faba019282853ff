package api

import (
	"encoding/json"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"
	"go.yaml.in/yaml/v3"
)

// addMapping adds an empty mapping to another, and returns it.
func addMapping(to *yaml.Node, name string) *yaml.Node {
	added := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	to.Content = append(to.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: name}, added)
	return added
}

// member returns the value at a path of names in the embedded document. It panics if there
// is none.
func member(node *yaml.Node, path ...string) *yaml.Node {
next:
	for _, name := range path {
		for i := 0; i < len(node.Content); i += 2 {
			if node.Content[i].Value == name {
				node = node.Content[i+1]
				continue next
			}
		}
		panic("the document has no member " + name)
	}
	return node
}

// extend adds the members of a YAML mapping to another.
func extend(mapping *yaml.Node, part []byte) error {
	var document yaml.Node
	if err := yaml.Unmarshal(part, &document); err != nil {
		return err
	}
	mapping.Content = append(mapping.Content, document.Content[0].Content...)
	return nil
}

// extendWith adds members to a mapping. They are written as JSON, which is YAML too.
func extendWith(mapping *yaml.Node, members map[string]any) error {
	document, err := json.Marshal(members)
	if err != nil {
		return err
	}
	return extend(mapping, document)
}

// replace replaces node by v.
func replace(node *yaml.Node, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		return err
	}
	*node = *document.Content[0]
	return nil
}

// write encodes a YAML node as JSON and keeps the order of its members.
func write(encoder *jsontext.Encoder, node *yaml.Node) error {
	switch node.Kind {
	case yaml.MappingNode:
		return writeAll(encoder, jsontext.BeginObject, node.Content, jsontext.EndObject)
	case yaml.SequenceNode:
		return writeAll(encoder, jsontext.BeginArray, node.Content, jsontext.EndArray)
	case yaml.ScalarNode:
		switch node.ShortTag() {
		case "!!str", "!!timestamp":
			return encoder.WriteToken(jsontext.String(node.Value))
		case "!!int", "!!float", "!!bool", "!!null":
			return encoder.WriteValue(jsontext.Value(node.Value))
		}
	}
	return fmt.Errorf("line %d: %s has no form in JSON", node.Line, node.ShortTag())
}

func writeAll(encoder *jsontext.Encoder, begin jsontext.Token, nodes []*yaml.Node, end jsontext.Token) error {
	if err := encoder.WriteToken(begin); err != nil {
		return err
	}
	for _, node := range nodes {
		if err := write(encoder, node); err != nil {
			return err
		}
	}
	return encoder.WriteToken(end)
}

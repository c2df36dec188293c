package protocol

import "encoding/binary"

// AppendTexts appends texts to a message, each as a length and its bytes. A length of all one
// bits means nil.
func AppendTexts(dst []byte, texts [][]byte) []byte {
	for _, text := range texts {
		length := uint32(len(text))
		if text == nil {
			length = 1<<32 - 1
		}
		dst = append(binary.LittleEndian.AppendUint32(dst, length), text...)
	}
	return dst
}

// SplitTexts returns the texts that AppendTexts appended.
func SplitTexts(body []byte) (texts [][]byte, err error) {
	for len(body) > 0 {
		if len(body) < 4 {
			return nil, ErrInvalidMessage
		}
		length := binary.LittleEndian.Uint32(body)
		body = body[4:]
		if length == 1<<32-1 {
			texts = append(texts, nil)
			continue
		}
		if uint64(length) > uint64(len(body)) {
			return nil, ErrInvalidMessage
		}
		texts, body = append(texts, body[:length:length]), body[length:]
	}
	return texts, nil
}

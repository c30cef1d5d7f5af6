package dataset

import (
	"math/rand/v2"
	"strconv"
	"strings"
)

// Product returns product p with the first names of its category and tags.
func (s *Set) Product(p int) Product {
	h := mix(s.cfg.Seed ^ uint64(p))
	category := s.Category(s.CategoryOf(p), 0)
	out := Product{
		ID: s.ProductID(p), CategoryID: category.ID, CategoryName: category.Name,
		SKU:   "SE-" + strconv.Itoa(p),
		Name:  "Touring-" + strconv.Itoa(p) + " Blue, " + strconv.Itoa(44+int(h%20)),
		Price: strconv.FormatUint(2+h%4000, 10) + "." + strconv.FormatUint(10+h>>32%90, 10),
	}
	if s.HasHotTag(p) {
		out.Tags = append(out.Tags, s.Tag(0, 0))
	}
	first := 1 + int(h>>16%coldTags)
	for k := range tagsOfEach {
		out.Tags = append(out.Tags, s.Tag(1+(first+k*67)%coldTags, 0))
	}
	// The description takes what is left.
	bare := len(out.appendJSON(nil))
	from := int(h>>24) % (len(s.text) - ItemBytes)
	out.Description = s.text[from : from+max(ItemBytes-bare, 0)]
	return out
}

// AppendProduct appends product p as compact JSON.
func (s *Set) AppendProduct(dst []byte, p int) []byte {
	product := s.Product(p)
	return product.appendJSON(dst)
}

// appendJSON writes what encoding/json would: no text here needs escaping.
func (p *Product) appendJSON(dst []byte) []byte {
	field := func(name, value string) {
		dst = append(dst, `"`...)
		dst = append(dst, name...)
		dst = append(dst, `":"`...)
		dst = append(dst, value...)
		dst = append(dst, `"`...)
	}
	dst = append(dst, '{')
	field("id", p.ID)
	for _, f := range [...][2]string{
		{"categoryId", p.CategoryID}, {"categoryName", p.CategoryName}, {"sku", p.SKU}, {"name", p.Name}, {"description", p.Description},
	} {
		dst = append(dst, ',')
		field(f[0], f[1])
	}
	dst = append(dst, `,"price":`...)
	dst = append(dst, p.Price...)
	dst = append(dst, `,"tags":[`...)
	for i, t := range p.Tags {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, '{')
		field("id", t.ID)
		dst = append(dst, ',')
		field("name", t.Name)
		dst = append(dst, '}')
	}
	return append(dst, "]}"...)
}

// JSON returns a category or tag as compact JSON. Rank is a field that nobody
// copies.
func (s Source) JSON(rank int) []byte {
	return []byte(`{"id":"` + s.ID + `","name":"` + s.Name + `","type":"` + s.Type + `","rank":` + strconv.Itoa(rank) + `}`)
}

// words returns some text to cut descriptions from.
func words(seed uint64) string {
	r := rand.New(rand.NewPCG(seed, 1))
	list := strings.Fields("frame wheel saddle light strong touring road mountain alloy steel blue red grips brake " +
		"chain bearing comfortable durable weather proof winter summer long distance value classic sealed hub")
	var b strings.Builder
	for b.Len() < 64<<10 {
		b.WriteString(list[r.IntN(len(list))])
		b.WriteByte(' ')
	}
	return b.String()
}

// SPDX-License-Identifier: BSD-3-Clause
// fmt's compiled part. Debian has it as a shared library only, which would bring its symbols into
// applications; header only, every file would compile it again, at two seconds each.
#include <fmt/format-inl.h>

FMT_BEGIN_NAMESPACE
namespace detail {

template void buffer<char>::append(const char*, const char*);
template void vformat_to(buffer<char>&, basic_string_view<char>,
                         basic_format_args<FMT_BUFFER_CONTEXT(char)>, locale_ref);
template auto decimal_point_impl(locale_ref) -> char;
template auto thousands_sep_impl(locale_ref) -> thousands_sep_result<char>;
template auto dragonbox::to_decimal(float) noexcept -> dragonbox::decimal_fp<float>;
template auto dragonbox::to_decimal(double) noexcept -> dragonbox::decimal_fp<double>;

}  // namespace detail
FMT_END_NAMESPACE
